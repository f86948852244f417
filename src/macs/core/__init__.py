"""The base of macs: errors, files, registries, settings, devices, the console. It knows no images and no networks."""
