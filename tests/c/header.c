// The header is self-contained, has an include guard, and matches the Rust definitions.
#include <siskin.h>
#include <siskin.h>

#ifndef __cplusplus
#include "layout.h"
#endif

// An ignored result is a compiler warning.
siskin_error *unused(siskin_strings **texts);

siskin_error *unused(siskin_strings **texts) { return siskin_strings_new(texts); }
