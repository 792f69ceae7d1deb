#ifndef ANNULUS_CLIENT_CLI_HELP_H_
#define ANNULUS_CLIENT_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

namespace annulus {

// Groups that options are listed under, in this order; a command's own options come first.
inline constexpr char kOutputGroup[] = "Output";
inline constexpr char kSamplingGroup[] = "Sampling (what is not given is left to the server)";
inline constexpr char kAttentionGroup[] = "Attention";
inline constexpr char kServerGroup[] = "Server";

// Lays out --help: usage, purpose, arguments, groups of options, commands, examples. Descriptions
// are wrapped, so that help is readable on any terminal of 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_HELP_H_
