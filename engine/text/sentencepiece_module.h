#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODULE_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODULE_H_

#include <cstddef>
#include <cstdint>

// What crosses the border between the program and its module of the sentencepiece library
// (sentencepiece_module.cc), which lives in a linker namespace with a C and a C++ library of its
// own: plain functions, bytes and numbers. No exception and no C++ object may cross.

extern "C" {

// A token and where it ends: how many bytes of the text it and those in front of it stand for.
struct AnnulusSentencePieceToken {
  int32_t id;
  uint32_t end;
};

// Messages are written as text that a zero byte ends, cut at kAnnulusSentencePieceMessageBytes.
enum { kAnnulusSentencePieceMessageBytes = 512 };

struct AnnulusSentencePieceFunctions {
  // Reads a model (ModelProto of sentencepiece_model.proto). Null: refused, `message` says why.
  void* (*load)(const char* model, size_t size, char* message);

  // Encodes text of at most 1 GiB, and gives the number of tokens, at most one for each byte, or
  // -1 with a message. Any number of threads may use one model.
  int64_t (*encode)(const void* model, const char* text, size_t size,
                    AnnulusSentencePieceToken* tokens, char* message);

  void (*free)(void* model);
};

// The module's one symbol. From then on the library's C++ objects get their memory from `allocate`
// (null: there is none) and give it to `release`; both must be thread-safe.
//
// Their own C library would serve too, but it is not told when a thread ends that the other one has
// made, so that each would leave some KiB of its cache behind for ever.
const AnnulusSentencePieceFunctions* AnnulusSentencePieceOpen(void* (*allocate)(size_t),
                                                              void (*release)(void*));
}

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODULE_H_
