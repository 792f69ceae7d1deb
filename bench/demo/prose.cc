#include "bench/demo/prose.h"

#include <span>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus::bench {
namespace {

constexpr absl::string_view kSentences[] = {
    "The {quality} ship {ship} left {place} at {hour} with {count} {cargo} aboard.",
    "{person} measured {count} fathoms of water under the {thing} of {place}.",
    "In {month} of {year} the {thing} at {place} was painted by {person} and {person}.",
    "No one at {place} remembered a {quality} {month} like the one of {year}.",
    "{person} of {place} paid {count} crowns for {count} {cargo} from the {ship}.",
    "The weather over {place} stayed {weather} until {hour}, and then it turned {weather}.",
    "A {quality} letter from {person} reached {place} on the {ship} in {month}.",
    "Between {place} and {place} the road runs {count} miles past a {quality} {thing}.",
    "At {hour} the watch on the {ship} saw the {thing} of {place} through {weather} air.",
    "{person} counted {count} gulls on the {thing} and wrote the number in the day book.",
    "The {thing} of {place} was {quality}, so the {ship} waited for {count} hours.",
    "When the {ship} came back in {year}, {person} sold her {cargo} at {place}.",
    "It was {weather} at {place}, and {person} mended the {thing} before {hour}.",
    "The council of {place} asked {person} to keep {count} {cargo} near the {thing}.",
};
constexpr absl::string_view kCargo[] = {"barrels of tar",  "crates of lemons", "bales of wool",
                                        "sacks of barley", "coils of rope",    "jars of honey",
                                        "bolts of canvas", "casks of cider",   "boxes of candles",
                                        "baskets of peat", "tubs of butter",   "rolls of copper"};
constexpr absl::string_view kThings[] = {
    "lighthouse", "breakwater",  "harbour wall", "bell tower",  "slipway",    "tide gauge",
    "rope walk",  "signal mast", "old quay",     "watch house", "salt store", "ferry stage"};
constexpr absl::string_view kQualities[] = {"quiet",     "sturdy",  "narrow",  "patient",
                                            "bitter",    "gentle",  "crooked", "hopeful",
                                            "weathered", "curious", "famous",  "lonely"};
constexpr absl::string_view kMonths[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
constexpr absl::string_view kWeathers[] = {"clear",  "foggy",  "stormy", "mild",
                                           "frosty", "bright", "rainy",  "still"};
constexpr absl::string_view kShipQualities[] = {"Patient",  "Silver",   "Northern", "Merry",
                                                "Restless", "Faithful", "Amber",    "Hidden",
                                                "Swift",    "Humble",   "Golden",   "Distant"};
constexpr absl::string_view kShipNouns[] = {"Heron",   "Lantern", "Otter",  "Compass",
                                            "Plover",  "Anchor",  "Willow", "Comet",
                                            "Thistle", "Petrel",  "Beacon", "Juniper"};
constexpr absl::string_view kPlaceWords[] = {"Tarn", "Mere",  "Holm", "Ness",  "Strand", "Skerry",
                                             "Fell", "Garth", "Wick", "Combe", "Cape",   "Port"};
constexpr absl::string_view kAnswerWords[] = {"KELP", "TERN", "GULL", "REEF", "BUOY", "KNOT",
                                              "MAST", "TIDE", "COVE", "SAIL", "HELM", "WHARF"};
constexpr absl::string_view kOnsets[] = {"b",  "br", "d",  "dr", "f", "g",  "gr", "h",
                                         "k",  "l",  "m",  "n",  "p", "pr", "r",  "s",
                                         "st", "t",  "th", "tr", "v", "w"};
constexpr absl::string_view kNuclei[] = {"a", "e", "i", "o", "u", "ea", "oa", "ei"};
constexpr absl::string_view kCodas[] = {"",   "l",  "n",  "r",  "m",  "ld", "rn",
                                        "sk", "th", "ck", "nd", "rt", "ss", "lm"};

}  // namespace

uint64_t Prose::Next() {
  state_ += 0x9e3779b97f4a7c15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string Prose::Sentence() { return Expand(kSentences[Below(std::size(kSentences))]); }

std::string Prose::Expand(absl::string_view pattern) {
  std::string text;
  while (true) {
    const size_t open = pattern.find('{');
    text.append(pattern.data(), std::min(open, pattern.size()));
    if (open == absl::string_view::npos) return text;
    const size_t close = pattern.find('}', open);
    ANNULUS_CHECK(close != absl::string_view::npos) << "unclosed brace in a sentence pattern";
    absl::StrAppend(&text, Draw(pattern.substr(open + 1, close - open - 1)));
    pattern.remove_prefix(close + 1);
  }
}

// Every draw is a statement of its own: the order in which arguments are evaluated is the
// compiler's.
std::string Prose::InventedName(int syllables) {
  std::string name;
  for (int i = 0; i < syllables; ++i) {
    // Few consonants may meet inside a name, or it cannot be spoken.
    const size_t codas = i + 1 == syllables ? std::size(kCodas) : 4;
    absl::StrAppend(&name, kOnsets[Below(std::size(kOnsets))]);
    absl::StrAppend(&name, kNuclei[Below(std::size(kNuclei))]);
    absl::StrAppend(&name, kCodas[Below(codas)]);
  }
  name[0] = absl::ascii_toupper(name[0]);
  return name;
}

std::string Prose::Draw(absl::string_view name) {
  const auto from = [this](std::span<const absl::string_view> words) {
    return std::string(words[Below(words.size())]);
  };
  if (name == "place") return Expand("{place word} {long name}");
  if (name == "PLACE") return absl::AsciiStrToUpper(Draw("place"));
  if (name == "person") return Expand("{short name} {long name}");
  if (name == "ship") return Expand("{ship quality} {ship noun}");
  if (name == "place word") return from(kPlaceWords);
  if (name == "short name") return InventedName(1);
  if (name == "long name") return InventedName(2);
  if (name == "ship quality") return from(kShipQualities);
  if (name == "ship noun") return from(kShipNouns);
  if (name == "cargo") return from(kCargo);
  if (name == "thing") return from(kThings);
  if (name == "quality") return from(kQualities);
  if (name == "month") return from(kMonths);
  if (name == "weather") return from(kWeathers);
  if (name == "word") return from(kAnswerWords);
  if (name == "year") return absl::StrCat(1700 + Below(200));
  if (name == "count") return absl::StrCat(2 + Below(900));
  if (name == "hour") return absl::StrCat(1 + Below(12), " o'clock");
  if (name == "digits") return absl::StrCat(10000 + Below(90000));
  ANNULUS_CHECK(false) << "no draw is called " << name;
  return "";
}

}  // namespace annulus::bench
