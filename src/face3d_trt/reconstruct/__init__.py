"""Photos to meshes and textures."""
