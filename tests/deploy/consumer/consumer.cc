// consumer SERVER TEXT: prints what follows the text, as the example of client/README.md.

#include <iostream>

#include "client/cancellation.h"
#include "client/connection.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/generation.h"

namespace {

class Printer final : public annulus::client::GenerationObserver {
 public:
  void OnQueued(const annulus::v1::Queued&) override {}
  void OnProgress(const annulus::v1::PromptProgress&) override {}
  void OnDelta(const annulus::v1::Delta& delta) override { std::cout << delta.text(); }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  annulus::client::Cancellation cancellation;
  auto connection = annulus::client::Connection::Open({.server = argv[1]}, cancellation);
  if (!connection.ok()) return 1;
  annulus::v1::GenerationSpec spec;
  spec.set_text(argv[2]);
  spec.mutable_sampling()->set_max_tokens(8);
  Printer printer;
  const annulus::client::Generation answer =
      annulus::client::StreamGenerate(**connection, spec, printer);
  std::cout << std::endl;
  return answer.status.ok() ? 0 : 1;
}
