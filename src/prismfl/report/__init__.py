"""What people look at: pictures, tables, the page."""
