"""Pictures of joins and their plans; importing this package does not import matplotlib."""
