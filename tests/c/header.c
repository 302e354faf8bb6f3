// The header says all that it needs, may stand twice, and means what Rust means.
#include <siskin.h>
#include <siskin.h>

#ifndef __cplusplus
#include "layout.h"
#endif

// What is not looked at is warned of.
siskin_error *unused(siskin_texts **texts);

siskin_error *unused(siskin_texts **texts) { return siskin_texts_new(texts); }
