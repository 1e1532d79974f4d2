__version__ = "0.1.0"  # that of include/hyscale/version.h; a test compares the two
