"""What every part of macs rests on: errors, files, registries, devices, the console. It knows no images and no nets."""
