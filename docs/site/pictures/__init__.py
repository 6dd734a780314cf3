"""Pictures of the documentation: the simulator runs a scene, and its curves become an SVG file."""
