#ifndef ANNULUS_CLIENT_CLI_CHAT_LINE_SOURCE_H_
#define ANNULUS_CLIENT_CLI_CHAT_LINE_SOURCE_H_

#include <istream>
#include <optional>
#include <string>

namespace annulus::client {

// A source of input lines: a terminal or a stream.
class LineSource {
 public:
  virtual ~LineSource() = default;

  // Returns the next line without its newline; nullopt at the end. Only a terminal shows `prompt`.
  virtual std::optional<std::string> Next(const std::string& prompt) = 0;

  // Whether Ctrl-C ended the last line that Next returned, which is then to be forgotten.
  virtual bool interrupted() const { return false; }
};

// Reads lines from a stream, which must outlive this object. Shows no prompt.
class StreamLines : public LineSource {
 public:
  explicit StreamLines(std::istream& in) : in_(in) {}
  std::optional<std::string> Next(const std::string& prompt) override;

 private:
  std::istream& in_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_LINE_SOURCE_H_
