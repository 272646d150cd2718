"""Speed: each figure with a calibration taken in the same minute on the same machine (design 11)."""
