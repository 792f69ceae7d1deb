#include "client/draw/attention_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/draw/axis.h"
#include "client/draw/cairo_canvas.h"
#include "client/draw/svg_canvas.h"

namespace annulus::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Cells by characters: '.' nothing, 'x' a third, '#' all.
std::string Cells(const std::string& picture) {
  std::string cells;
  for (const char c : picture) cells += c == '#' ? '\xff' : c == 'x' ? '\x55' : '\0';
  return cells;
}

AttentionPicture Example() {
  AttentionPicture picture;
  picture.title = "strided:block=64";
  picture.subtitle = "256 tokens, density 0.7";
  picture.tokens = picture.span = 256;
  picture.side = 4;
  picture.squares = {{"head 0", Cells("#..."
                                      "##.."
                                      ".##."
                                      "x.##")},
                     {"head 1", Cells("#..."
                                      ".#.."
                                      "..#."
                                      "...#")}};
  return picture;
}

Image DecodePng(std::string bytes) {
  const auto read = [](void* from, unsigned char* data, unsigned int length) {
    std::string& rest = *static_cast<std::string*>(from);
    if (rest.size() < length) return CAIRO_STATUS_READ_ERROR;
    std::memcpy(data, rest.data(), length);
    rest.erase(0, length);
    return CAIRO_STATUS_SUCCESS;
  };
  const CairoSurface surface(cairo_image_surface_create_from_png_stream(read, &bytes));
  EXPECT_EQ(cairo_surface_status(surface.get()), CAIRO_STATUS_SUCCESS);
  Image image(cairo_image_surface_get_width(surface.get()),
              cairo_image_surface_get_height(surface.get()));
  const unsigned char* const data = cairo_image_surface_get_data(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      uint32_t pixel = 0;
      std::memcpy(&pixel, data + y * stride + x * 4, sizeof(pixel));
      image.at(x, y) = {static_cast<uint8_t>(pixel >> 16), static_cast<uint8_t>(pixel >> 8),
                        static_cast<uint8_t>(pixel)};
    }
  }
  return image;
}

TEST(CellScale, RunsToTheLargestShareThereIs) {
  CellScale scale;
  EXPECT_EQ(scale.Step(0), 0);
  EXPECT_EQ(scale.MostText(), "100%");
  scale.Add(std::string("\0\x05\x14", 3));
  EXPECT_FALSE(scale.uniform());
  EXPECT_EQ(scale.most(), 20);
  EXPECT_EQ(scale.MostText(), "7.8%");
  EXPECT_EQ(scale.Step(0), 0);
  EXPECT_EQ(scale.Step(1), 1) << "the least is told from nothing";
  EXPECT_EQ(scale.Step(20), CellScale::kSteps);
  for (int share = 2; share <= 20; ++share) {
    EXPECT_GE(scale.Step(static_cast<uint8_t>(share)), scale.Step(static_cast<uint8_t>(share - 1)));
  }
  for (int step = 2; step <= CellScale::kSteps; ++step) {
    EXPECT_LT(CellScale::ColorOf(step).green, CellScale::ColorOf(step - 1).green);
  }
  CellScale all;
  all.Add(std::string("\0\xff\xff", 3));
  EXPECT_TRUE(all.uniform());
  EXPECT_EQ(all.MostText(), "100%");
}

TEST(AxisTicks, AreRoundAndFew) {
  EXPECT_THAT(AxisTicks(16384, 4), ElementsAre(0, 5000, 10000, 15000));
  EXPECT_THAT(AxisTicks(250, 4), ElementsAre(0, 100, 200));
  EXPECT_THAT(AxisTicks(3, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(AxisTicks(0, 1), ElementsAre(0));
  for (int64_t tokens = 1; tokens < int64_t{1} << 40; tokens = tokens * 3 + 1) {
    for (int intervals = 1; intervals < 9; ++intervals) {
      const std::vector<int64_t> ticks = AxisTicks(tokens, intervals);
      EXPECT_LE(ticks.size(), intervals + 1u) << tokens;
      EXPECT_LE(ticks.back(), tokens);
      EXPECT_GE(ticks.size(), intervals > 2 ? 2u : 1u) << tokens;
    }
  }
}

std::string TextLegend(int tokens) {
  return "queries go down, keys right, 0 to " + std::to_string(tokens) +
         " tokens: █ attended, ▒ in part, · not\n";
}

TEST(DrawText, ShowsTwoRowsInOneLine) {
  EXPECT_EQ(DrawText(Example(), 80), "strided:block=64\n256 tokens, density 0.7\n" +
                                         TextLegend(256) +
                                         "\n"
                                         "head  head\n"
                                         "█▄    ▀▄  \n"
                                         "▄▀█▄  ··▀▄\n");
  // Too narrow for two heads in a row, and for any: one below the other.
  EXPECT_EQ(DrawText(Example(), 9), "strided:block=64\n256 tokens, density 0.7\n" +
                                        TextLegend(256) +
                                        "\n"
                                        "head 0\n█▄  \n▄▀█▄\n\n"
                                        "head 1\n▀▄  \n··▀▄\n");
  EXPECT_EQ(DrawText(Example(), 0), DrawText(Example(), 9));
}

TEST(DrawText, TakesAnOddNumberOfRows) {
  AttentionPicture picture;
  picture.tokens = picture.side = 3;
  picture.squares = {{"h", Cells("#..#x.###")}};
  EXPECT_EQ(DrawText(picture, 80), "\n\n" + TextLegend(3) + "\nh\n█▄ \n▀▀▀\n");
}

TEST(DrawText, ShadesWhatIsAttendedInPart) {
  AttentionPicture picture;
  picture.tokens = picture.side = 2;
  picture.squares = {{"h", Cells("x.x#")}};
  EXPECT_EQ(DrawText(picture, 80), "\n\n" + TextLegend(2) + "\nh\n▒▄\n");
}

TEST(DrawSvg, JoinsNeighboursAndEscapesTexts) {
  AttentionPicture picture = Example();
  picture.title = "<script> & \"x\"";
  const std::string svg = DrawSvg(picture);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt; &amp; &quot;x&quot;"));
  EXPECT_THAT(svg, HasSubstr(">head 1</text>"));
  // The darkest colour of head 0 is its commonest: it lies below the others, whole rows of it. Then
  // what is left out, and the third of a cell.
  EXPECT_THAT(svg, HasSubstr("scale(64)\" fill=\"none\" stroke-width=\"1\">\n"
                             "<path stroke=\"#0a3470\" d=\"M0 .5h1m-1 1h2m-2 1h3m-3 1h4\"/>\n"
                             "<path stroke=\"#e9eef5\" d=\"M0 .5m0 2h1m0 1h1\"/>\n"));
}

// Axes count tokens, also where the last block is cut.
TEST(DrawSvg, HasAxesInTokensAndALegend) {
  AttentionPicture picture = Example();
  picture.tokens = 250;
  const std::string svg = DrawSvg(picture);
  for (const char* text : {">queries (tokens)<", ">keys (tokens)<", ">left out<",
                           ">attended: above 0% to 100% of a cell<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  // 200 of 256 tokens of a square of 256 units behind the axis of 3 digits.
  constexpr int kLeft = 20 + 3 * 6 + 8;
  EXPECT_THAT(svg, HasSubstr(absl::StrCat("<text x=\"", kLeft + 200,
                                          "\" y=\"354\" fill=\"#647085\" "
                                          "text-anchor=\"middle\">200</text>")));
  EXPECT_THAT(svg, HasSubstr(absl::StrCat("<text x=\"", kLeft - 6, "\" y=\"", 84 + 200 + 3,
                                          "\" fill=\"#647085\" text-anchor=\"end\">200</text>")));
  for (AttentionPicture::Square& square : picture.squares) {
    for (char& cell : square.cells) cell = cell == 0 ? '\0' : '\x33';
  }
  EXPECT_THAT(DrawSvg(picture), HasSubstr(">attended: 20% of a cell<"));
}

// Whatever is attended: neighbours differ in every cell, and no colour is much commoner than
// others.
TEST(DrawSvg, StaysSmallWithTheWorstMaps) {
  constexpr int kSide = 128;
  constexpr size_t kMost = 200'000;
  std::mt19937 random(7);
  const auto size_of = [&](const std::function<int(int row, int column)>& share) {
    AttentionPicture picture;
    picture.title = "adaptive:block=64,coverage=0.9";
    picture.tokens = picture.span = picture.side = kSide;
    for (int head = 0; head < 4; ++head) {
      AttentionPicture::Square& square = picture.squares.emplace_back();
      square.label = absl::StrCat("head ", head, ", density 0.123");
      for (int row = 0; row < kSide; ++row) {
        for (int column = 0; column < kSide; ++column) {
          square.cells += static_cast<char>(share(row, column));
        }
      }
    }
    return DrawSvg(picture).size();
  };
  EXPECT_LT(size_of([&](int, int) { return random() % 256; }), kMost);
  EXPECT_LT(size_of([&](int, int) { return random() % 9 * 255 / 8; }), kMost);
  EXPECT_LT(size_of([](int row, int column) { return (row + column) % 2 * 255; }), kMost);
  for (int stride = 1; stride < 9; ++stride) {
    EXPECT_LT(size_of([&](int row, int column) { return (column * stride + row) % 9 * 255 / 8; }),
              kMost)
        << stride;
    EXPECT_LT(
        size_of([&](int row, int column) { return 31 + (column * stride + row) % 8 * 255 / 8; }),
        kMost)
        << stride;
  }
}

TEST(DrawPng, HasEveryCellInItsColour) {
  const AttentionPicture picture = Example();
  const auto bytes = DrawPng(picture);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Image image = DecodePng(*bytes);
  constexpr int kCell = 64 * CairoCanvas::kScale;
  constexpr int kLeft = (20 + 3 * 6 + 8) * CairoCanvas::kScale;
  constexpr int kTop = 84 * CairoCanvas::kScale;
  const auto color_of = [](char cell) {
    return cell == 0 ? kLeftOut : CellScale::ColorOf(cell == '\xff' ? 8 : 3);
  };
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column <= row; ++column) {
      EXPECT_EQ(image.at(kLeft + column * kCell + kCell / 2, kTop + row * kCell + kCell / 2),
                color_of(picture.squares[0].cells[row * 4 + column]))
          << row << " " << column;
    }
  }
  const Color white = {255, 255, 255};
  EXPECT_EQ(image.at(kLeft + 3 * kCell + 5, kTop + kCell + 5), white);  // no query sees it
}

TEST(DrawCells, IsOnePixelForEachCell) {
  CellScale scale;
  scale.Add(Cells("#..#x.###"));
  const Image image = DrawCells(Cells("#..#x.###"), "", 3, scale);
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.at(1, 1), CellScale::ColorOf(3));
  EXPECT_EQ(image.at(0, 2), CellScale::ColorOf(8));
  EXPECT_EQ(image.at(2, 1), (Color{255, 255, 255}));
  EXPECT_EQ(DecodePng(EncodePng(image).value()).pixels, image.pixels);
}

// Rows that were not computed look like nothing else.
TEST(DrawCells, HatchesWhatWasNotComputed) {
  CellScale scale;
  const Image image = DrawCells(Cells("....#.###"), std::string("\0\x01\xff", 3), 3, scale);
  EXPECT_EQ(image.at(0, 0), kHatch);
  EXPECT_EQ(image.at(0, 1), kLeftOut);
  EXPECT_EQ(image.at(1, 0), (Color{255, 255, 255}));
  const Image other = DrawCells(Cells("........."), std::string(3, '\0'), 3, scale);
  EXPECT_EQ(other.at(0, 1), kNotComputed);
  EXPECT_EQ(other.at(2, 2), kHatch);
}

// How many pixels in the columns [begin, end) of the rows [top, bottom) are not `paper`.
int Drawn(const Image& image, int begin, int end, int top, int bottom, Color paper) {
  int drawn = 0;
  for (int y = top; y < bottom; ++y) {
    for (int x = begin; x < end; ++x) drawn += image.at(x, y) == paper ? 0 : 1;
  }
  return drawn;
}

TEST(CairoCanvas, ClipsAndAnchorsTexts) {
  constexpr int kScale = CairoCanvas::kScale;
  const Color paper = {1, 2, 3};
  for (const auto& [anchor, begin] : {std::pair(Canvas::Anchor::kStart, 30),
                                      {Canvas::Anchor::kMiddle, 24},
                                      {Canvas::Anchor::kEnd, 18}}) {
    CairoCanvas canvas(60, 20);
    canvas.Rectangle(-5, -5, 100, 100, paper);
    canvas.Text(30, 12, "mm", {9, 9, 9}, anchor);
    canvas.Text(59, 100, "far below", {9, 9, 9}, Canvas::Anchor::kEnd);
    const Image image = DecodePng(canvas.Png().value());
    const int first = begin * kScale, end = first + 2 * Canvas::kAdvance * kScale;
    EXPECT_EQ(image.at(119, 39), paper);
    EXPECT_GT(Drawn(image, first, end, 0, 13 * kScale, paper), 40);
    EXPECT_EQ(Drawn(image, 0, first - 1, 0, 20 * kScale, paper), 0);
    EXPECT_EQ(Drawn(image, end + 1, 60 * kScale, 0, 20 * kScale, paper), 0);
  }
}

TEST(CairoCanvas, AnyBytesAreAText) {
  CairoCanvas canvas(60, 20);
  canvas.Title(0, 12, "a\xff\xc3\n\x01", {9, 9, 9});
  canvas.Text(0, 12, "", {9, 9, 9}, Canvas::Anchor::kEnd);
  EXPECT_TRUE(canvas.Png().ok()) << canvas.Png().status();
}

TEST(CairoCanvas, ATooLargePictureIsAnError) {
  EXPECT_THAT(CairoCanvas(1 << 20, 1).Png().status().message(), HasSubstr("cannot be drawn"));
  EXPECT_FALSE(EncodePng(Image(1 << 16, 1)).ok());
}

TEST(EscapeMarkup, LeavesNothingThatEndsAnElement) {
  EXPECT_EQ(EscapeMarkup("a<b>&'\"\x01\x1b\x7f\n\tü"), "a&lt;b&gt;&amp;&#39;&quot;   \n\tü");
}

}  // namespace
}  // namespace annulus::client
