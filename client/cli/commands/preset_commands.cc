#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cli/ask/map_reduce.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/help.h"
#include "client/cli/line/options.h"
#include "client/failure.h"
#include "client/format/table.h"

namespace annulus::client {
namespace {

struct PresetOptions {
  std::string command;
  std::vector<std::string> documents;
  std::string what;
  std::string preset = "default";
  bool show = false;
  bool list = false;
  MapReduceOptions run;
};

int PrintPresets(Session& session, const PresetOptions& options, const Environment& environment) {
  Table table({{"PRESET"}, {"FROM"}});
  for (const PresetText& preset : ListPresets(options.command, environment)) {
    table.AddRow({preset.name, preset.where});
  }
  session.Print(table.Render(session.table_columns()));
  return session.Finish();
}

int RunPreset(Session& session, const PresetOptions& options, const Environment& environment) {
  if (options.list) return PrintPresets(session, options, environment);
  const absl::StatusOr<PresetText> text = FindPreset(options.command, options.preset, environment);
  if (!text.ok()) return session.Misuse(text.status().message());
  if (options.show) {
    session.Print(text->text);
    return session.Finish();
  }
  absl::StatusOr<Preset> preset = ParsePreset(*text);
  if (!preset.ok()) return session.Misuse(preset.status().message());
  if (options.documents.empty()) {
    return session.Misuse(absl::StrCat("a document is required, for example: annulus ",
                                       options.command, " report.pdf"));
  }
  if (options.command == "extract" && options.what.empty()) {
    return session.Misuse("--what is required, for example: --what 'names and dates'");
  }
  if (CheckText(session, "--what", options.what) != 0) return kExitMisuse;
  for (std::string* question : {&preset->question, &preset->part, &preset->merge}) {
    *question = absl::StrReplaceAll(*question, {{"{what}", options.what}});
  }
  return MapReduce(session, *preset, options.run).Run(options.documents);
}

void AddPresetCommand(CLI::App& app, CommonOptions& common, Action& action,
                      const Environment& environment, const std::string& name, const char* help,
                      const char* examples) {
  CLI::App& command = *app.add_subcommand(name, help);
  const auto options = std::make_shared<PresetOptions>();
  options->command = name;
  command.add_option("DOC...", options->documents,
                     "Documents of any length, as for ask; those longer than the model's context "
                     "are split, and the answers for the parts are merged");
  if (name == "extract") {
    command.add_option("--what", options->what, "What to look for, for example 'names and dates'")
        ->type_name("TEXT");
  }
  command
      .add_option("--preset", options->preset,
                  "Preset with the questions: a name or a file (default: default)")
      ->type_name("NAME|FILE");
  command.add_flag("--list-presets", options->list, "List the presets and exit");
  command.add_flag("--show-preset", options->show,
                   "Print the preset as a file to copy and edit, and exit");
  command
      .add_option("--concurrency", options->run.concurrency,
                  "Number of parts in parallel, 1 to 256 (default 2)")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  AddDocumentOptions(command, options->run.choice);
  command
      .add_option("-o,--output", options->run.answer.output,
                  "Write the answer to FILE when it is complete (default: standard output)")
      ->type_name("FILE")
      ->group(kOutputGroup);
  AddGenerationOptions(command, options->run.spec);
  AddCommonOptions(command, common);
  command.footer(examples);
  command.callback([&action, &environment, options] {
    action = [options, &environment](Session& session) {
      return RunPreset(session, *options, environment);
    };
  });
}

}  // namespace

void AddPresetCommands(CLI::App& app, CommonOptions& common, Action& action,
                       const Environment& environment) {
  AddPresetCommand(app, common, action, environment, "summarize",
                   "Summarize documents of any length",
                   "Examples:\n"
                   "  annulus summarize report.pdf\n"
                   "  annulus summarize minutes/ --preset bullets -o summary.md\n"
                   "  annulus summarize --show-preset > "
                   "~/.config/annulus/presets/summarize-mine.yaml");
  AddPresetCommand(app, common, action, environment, "extract",
                   "List every item of a kind (names, dates) in documents of any length",
                   "Examples:\n"
                   "  annulus extract contract.pdf --what 'parties and dates'\n"
                   "  annulus extract 'letters/*.docx' --what 'sender, amount' --preset json");
}

}  // namespace annulus::client
