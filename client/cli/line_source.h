#ifndef ANNULUS_CLIENT_CLI_LINE_SOURCE_H_
#define ANNULUS_CLIENT_CLI_LINE_SOURCE_H_

#include <istream>
#include <optional>
#include <string>

namespace annulus {

// Lines that somebody types or pipes in.
class LineSource {
 public:
  virtual ~LineSource() = default;

  // The next line without its newline; nothing at the end. `prompt` is shown to a person only.
  virtual std::optional<std::string> Next(const std::string& prompt) = 0;
};

// Lines of a stream, which must outlive this. Nobody is prompted.
class StreamLines : public LineSource {
 public:
  explicit StreamLines(std::istream& in) : in_(in) {}
  std::optional<std::string> Next(const std::string& prompt) override;

 private:
  std::istream& in_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LINE_SOURCE_H_
