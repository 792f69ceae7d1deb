#include "client/draw/attention_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <string>
#include <vector>

#include "client/draw/glyphs.h"
#include "client/draw/pixel_canvas.h"
#include "client/draw/svg_canvas.h"

namespace annulus {
namespace {

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
  picture.tokens = 256;
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

Image DecodePng(const std::string& bytes) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()), 0) << png.message;
  png.format = PNG_FORMAT_RGB;
  Image image(static_cast<int>(png.width), static_cast<int>(png.height));
  EXPECT_NE(png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr), 0)
      << png.message;
  return image;
}

TEST(CellColor, TellsNothingFromLittleAndGrowsDarker) {
  EXPECT_NE(CellColor(0), CellColor(1));
  for (int share = 2; share < 256; ++share) {
    EXPECT_LE(CellColor(static_cast<uint8_t>(share)).green,
              CellColor(static_cast<uint8_t>(share - 1)).green);
  }
  EXPECT_LT(CellColor(255).green + 100, CellColor(1).green);
}

const std::string kLegend = "queries go down, keys right: █ attended, ▒ in part, · not\n";

TEST(DrawText, ShowsTwoRowsInOneLine) {
  EXPECT_EQ(DrawText(Example(), 80), "strided:block=64\n256 tokens, density 0.7\n" + kLegend +
                                         "\n"
                                         "head  head\n"
                                         "█▄    ▀▄  \n"
                                         "▄▀█▄  ··▀▄\n");
  // Too narrow for two heads in a row, and for any: one below the other.
  EXPECT_EQ(DrawText(Example(), 9), "strided:block=64\n256 tokens, density 0.7\n" + kLegend +
                                        "\n"
                                        "head 0\n█▄  \n▄▀█▄\n\n"
                                        "head 1\n▀▄  \n··▀▄\n");
  EXPECT_EQ(DrawText(Example(), 0), DrawText(Example(), 9));
}

TEST(DrawText, TakesAnOddNumberOfRows) {
  AttentionPicture picture;
  picture.tokens = picture.side = 3;
  picture.squares = {{"h", Cells("#..#x.###")}};
  EXPECT_EQ(DrawText(picture, 80), "\n\n" + kLegend + "\nh\n█▄ \n▀▀▀\n");
}

TEST(DrawText, ShadesWhatIsAttendedInPart) {
  AttentionPicture picture;
  picture.tokens = picture.side = 2;
  picture.squares = {{"h", Cells("x.x#")}};
  EXPECT_EQ(DrawText(picture, 80), "\n\n" + kLegend + "\nh\n▒▄\n");
}

TEST(DrawSvg, JoinsNeighboursAndEscapesTexts) {
  AttentionPicture picture = Example();
  picture.title = "<script> & \"x\"";
  const std::string svg = DrawSvg(picture);
  EXPECT_THAT(svg, ::testing::StartsWith("<svg xmlns="));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt; &amp; &quot;x&quot;"));
  EXPECT_THAT(svg, HasSubstr(">head 1</text>"));
  // The second row of head 0 is one rectangle of two cells.
  EXPECT_THAT(svg, HasSubstr("x=\"20\" y=\"136\" width=\"128\" height=\"64\" fill=\"#0a3470\""));
  size_t rectangles = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) {
    ++rectangles;
  }
  EXPECT_EQ(rectangles, 1u + (1 + 1 + 2 + 3) + (1 + 2 + 2 + 2) + 1 + 32);
}

TEST(DrawPng, HasEveryCellInItsColour) {
  const AttentionPicture picture = Example();
  const auto bytes = DrawPng(picture);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const Image image = DecodePng(*bytes);
  constexpr int kCell = 64 * PixelCanvas::kScale;
  constexpr int kLeft = 20 * PixelCanvas::kScale;
  constexpr int kTop = 72 * PixelCanvas::kScale;
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column <= row; ++column) {
      const auto share = static_cast<uint8_t>(picture.squares[0].cells[row * 4 + column]);
      EXPECT_EQ(image.at(kLeft + column * kCell + kCell / 2, kTop + row * kCell + kCell / 2),
                CellColor(share))
          << row << " " << column;
    }
  }
  const Color white = {255, 255, 255};
  EXPECT_EQ(image.at(kLeft + 3 * kCell + 5, kTop + kCell + 5), white);  // no query sees it
}

TEST(DrawCells, IsOnePixelForEachCell) {
  const Image image = DrawCells(Cells("#..#x.###"), 3);
  EXPECT_EQ(image.width, 3);
  EXPECT_EQ(image.at(1, 1), CellColor(0x55));
  EXPECT_EQ(image.at(0, 2), CellColor(255));
  EXPECT_EQ(image.at(2, 1), (Color{255, 255, 255}));
  EXPECT_EQ(DecodePng(EncodePng(image).value()).pixels, image.pixels);
}

TEST(Glyphs, CoverWhatPoliciesAreWrittenWith) {
  const Glyph& box = GlyphOf('~');
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz0123456789_:=,/.-()% ")) {
    EXPECT_EQ(GlyphOf(c).character, c);
  }
  EXPECT_EQ(GlyphOf('A').rows, box.rows);
  EXPECT_EQ(GlyphOf('\xc3').rows, box.rows);
}

TEST(PixelCanvas, ClipsAndPlacesTexts) {
  PixelCanvas canvas(20, 10);
  canvas.Rectangle(-5, -5, 100, 100, {1, 2, 3});
  canvas.Text(10, 9, "-", {9, 9, 9}, Canvas::Anchor::kMiddle);
  canvas.Text(19, 100, "far below", {9, 9, 9}, Canvas::Anchor::kEnd);
  const Image& image = canvas.image();
  EXPECT_EQ(image.at(39, 19), (Color{1, 2, 3}));
  EXPECT_EQ(image.at(14, 10), (Color{9, 9, 9}));  // the dash's row is the fourth of seven
  EXPECT_EQ(image.at(13, 10), (Color{1, 2, 3}));
}

TEST(EscapeMarkup, LeavesNothingThatEndsAnElement) {
  EXPECT_EQ(EscapeMarkup("a<b>&'\"\x01\x1b\x7f\n\tü"), "a&lt;b&gt;&amp;&#39;&quot;   \n\tü");
}

}  // namespace
}  // namespace annulus
