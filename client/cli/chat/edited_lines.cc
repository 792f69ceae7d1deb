#include "client/cli/chat/edited_lines.h"

#include <histedit.h>
#include <langinfo.h>

#include <clocale>
#include <cstdio>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

constexpr int kRememberedLines = 1000;

// Sets a UTF-8 locale: libedit decodes bytes as the locale says, and all text here is UTF-8.
void TakeUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (absl::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

class TerminalLines : public LineSource {
 public:
  TerminalLines() {
    TakeUtf8();
    history_.reset(history_init());
    editor_.reset(el_init("annulus", stdin, stderr, stderr));
    HistEvent event;
    history(history_.get(), &event, H_SETSIZE, kRememberedLines);
    history(history_.get(), &event, H_SETUNIQUE, 1);
    el_set(editor_.get(), EL_HIST, history, history_.get());
    el_set(editor_.get(), EL_CLIENTDATA, this);
    el_set(editor_.get(), EL_PROMPT, &TerminalLines::Prompt);
    el_set(editor_.get(), EL_EDITOR, "emacs");
    el_set(editor_.get(), EL_SIGNAL, 1);  // restores the terminal when the program is suspended
    el_source(editor_.get(), nullptr);
  }

  std::optional<std::string> Next(const std::string& prompt) override {
    prompt_ = prompt;
    int size = 0;
    const char* const line = el_gets(editor_.get(), &size);
    if (line == nullptr || size <= 0) {
      std::fputc('\n', stderr);
      return std::nullopt;
    }
    const absl::string_view text =
        absl::StripSuffix(absl::string_view(line, static_cast<size_t>(size)), "\n");
    HistEvent event;
    if (!text.empty()) history(history_.get(), &event, H_ENTER, line);
    return std::string(text);
  }

 private:
  static const char* Prompt(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalLines*>(self)->prompt_.c_str();
  }

  std::string prompt_;
  std::unique_ptr<History, decltype(&history_end)> history_{nullptr, &history_end};
  std::unique_ptr<EditLine, decltype(&el_end)> editor_{nullptr, &el_end};
};

}  // namespace

std::unique_ptr<LineSource> EditLines() { return std::make_unique<TerminalLines>(); }

}  // namespace annulus::client
