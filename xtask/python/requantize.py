"""Requantizes a GGUF model to other types with llama.cpp's quantizer."""

import argparse
import ctypes

import llama_cpp

TYPES = {"q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
         "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("type", choices=sorted(TYPES))
    options = parser.parse_args()
    silent = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = TYPES[options.type]
    params.allow_requantize = True
    params.nthread = 2
    if llama_cpp.llama_model_quantize(options.model.encode(), options.output.encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"llama.cpp cannot write {options.model} as {options.type}")


main()
