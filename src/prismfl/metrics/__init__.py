"""How good a model, a picture or a table is: tensors in, numbers out. Opens no door and no file."""
