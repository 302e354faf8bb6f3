// The module is its header alone; a target of C needs a source.
#include "siskin.h"
