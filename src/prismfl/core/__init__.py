"""The idea: a door, a release, a method, a job, a round. Only here is a door or a release made."""
