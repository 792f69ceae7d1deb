#ifndef ANNULUS_CLIENT_CLI_LINE_HELP_H_
#define ANNULUS_CLIENT_CLI_LINE_HELP_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace annulus::client {

// The flag that places a document before a prompt.
inline constexpr char kDocumentFlag[] = "--document";

// Groups of options in --help, which lists a command's own options first, then attention, the form
// of the answer, sampling, output and server.
inline constexpr char kOutputGroup[] = "Output";
inline constexpr char kSamplingGroup[] = "Sampling (default: the server's)";
inline constexpr char kAttentionGroup[] = "Attention";
inline constexpr char kFormGroup[] = "Form of the answer (one of these)";
inline constexpr char kServerGroup[] = "Server";

// Lays out --help: usage, purpose, arguments, commands, groups of options, examples. Wraps
// descriptions for a terminal of 100 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

// The command with its parents: "annulus documents put" for the command put.
std::string FullName(const CLI::App& command);

// The subcommands of `app`, in the order of --help.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_HELP_H_
