"""Programs that show how the library and the server are used."""
