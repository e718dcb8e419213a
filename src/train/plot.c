/* plot.c - to be written */
#include "train/history.h"
