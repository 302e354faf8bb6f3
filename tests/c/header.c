// The header is self-contained, has an include guard, and matches the Rust definitions.
#include <siskin.h>
#include <siskin.h>

#ifndef __cplusplus
#include "layout.h"
#endif

// An ignored result is a compiler warning.
siskin_error *unused(siskin_texts **texts);

siskin_error *unused(siskin_texts **texts) { return siskin_texts_new(texts); }
