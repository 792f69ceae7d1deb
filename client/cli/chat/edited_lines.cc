#include "client/cli/chat/edited_lines.h"

#include <histedit.h>
#include <langinfo.h>

#include <clocale>
#include <csignal>
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
    // While a line is edited, Ctrl-C is a key and no signal. libedit sets the terminal's flags
    // only, not its keys, so the other signals become keys too.
    el_set(editor_.get(), EL_SETTY, "-d", "-isig", nullptr);
    el_set(editor_.get(), EL_ADDFN, kInterrupt, "Forget the line", &TerminalLines::Interrupt);
    el_set(editor_.get(), EL_BIND, "^C", kInterrupt, nullptr);
    el_set(editor_.get(), EL_ADDFN, kSignal, "Suspend or quit", &TerminalLines::Signal);
    el_set(editor_.get(), EL_BIND, "^Z", kSignal, nullptr);
    el_set(editor_.get(), EL_BIND, "^\\", kSignal, nullptr);
    el_set(editor_.get(), EL_SIGNAL, 1);  // restores the terminal when the program is suspended
    el_source(editor_.get(), nullptr);
  }

  std::optional<std::string> Next(const std::string& prompt) override {
    prompt_ = prompt;
    interrupted_ = false;
    int size = 0;
    const char* const line = el_gets(editor_.get(), &size);
    if (interrupted_) {
      std::fputc('\n', stderr);
      return "";
    }
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

  bool interrupted() const override { return interrupted_; }

 private:
  static constexpr char kInterrupt[] = "annulus-interrupt";
  static constexpr char kSignal[] = "annulus-signal";
  static constexpr int kSuspendKey = 'Z' - '@';

  static TerminalLines* Of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalLines*>(self);
  }

  static const char* Prompt(EditLine* editor) { return Of(editor)->prompt_.c_str(); }

  static unsigned char Interrupt(EditLine* editor, int /*key*/) {
    Of(editor)->interrupted_ = true;
    std::fputs("^C", stderr);
    return CC_NEWLINE;
  }

  static unsigned char Signal(EditLine* /*editor*/, int key) {
    std::raise(key == kSuspendKey ? SIGTSTP : SIGQUIT);  // libedit's handler tells the whole job
    return CC_REDISPLAY;
  }

  std::string prompt_;
  bool interrupted_ = false;
  std::unique_ptr<History, decltype(&history_end)> history_{nullptr, &history_end};
  std::unique_ptr<EditLine, decltype(&el_end)> editor_{nullptr, &el_end};
};

}  // namespace

std::unique_ptr<LineSource> EditLines() { return std::make_unique<TerminalLines>(); }

}  // namespace annulus::client
