package batch

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Compare says how the output of a case is compared with what is expected.
type Compare string

// The ways to compare. The zero value means CompareLines.
const (
	CompareDefault Compare = ""
	// CompareExact: byte for byte.
	CompareExact Compare = "exact"
	// CompareLines: line by line, without the white space at the end of each line and without empty lines at the end.
	CompareLines Compare = "lines"
	// CompareFloat: word by word. Words are separated by any white space. Two words that are numbers may differ by the tolerance.
	CompareFloat Compare = "float"
)

// Tolerance bounds the difference of two numbers: at most Abs, or at most Rel times the expected one.
type Tolerance struct{ Abs, Rel float64 }

// Comparer compares a stream with an expected text while the stream arrives. Its memory does not grow with the stream.
type Comparer interface {
	// Write takes the next bytes of the stream. It never fails.
	Write(p []byte) (int, error)
	// Difference is called once, at the end of the stream. It says in words where the stream first differs; "" = it is as expected.
	Difference() string
}

// NewComparer returns the Comparer of a stream with want. The tolerance counts for CompareFloat only.
func NewComparer(how Compare, want string, t Tolerance) Comparer {
	switch how {
	case CompareExact:
		return &exactComparer{want: []byte(want)}
	case CompareFloat:
		return newWordComparer(want, t)
	case CompareDefault, CompareLines:
	}
	return &linesComparer{exactComparer: exactComparer{want: trimLines([]byte(want)), lines: true}}
}

// exactComparer compares byte for byte.
type exactComparer struct {
	want []byte
	// lines says that ends of lines at the end of the stream do not count, and are not shown.
	lines bool
	// at counts the bytes that are as expected. From differs on rest has what follows in the line, and over says that it has ended.
	at            int
	differs, over bool
	rest          []byte
	// extra counts the ends of lines between the expected end and rest, if lines is set.
	extra int
}

// Write implements Comparer.
func (c *exactComparer) Write(p []byte) (int, error) {
	n := len(p)
	if !c.differs {
		rest := c.want[c.at:]
		same := 0
		for same < len(p) && same < len(rest) && p[same] == rest[same] {
			same++
		}
		c.at += same
		c.differs, p = same < len(p), p[same:]
	}
	for c.differs && c.lines && c.at == len(c.want) && len(c.rest) == 0 && len(p) > 0 && p[0] == '\n' {
		c.extra, p = c.extra+1, p[1:]
	}
	if c.differs && !c.over {
		end := bytes.IndexByte(p, '\n') + 1
		if c.over = end > 0; c.over {
			p = p[:end]
		}
		c.rest = append(c.rest, p[:min(len(p), maxShown+1-len(c.rest))]...)
		c.over = c.over || len(c.rest) > maxShown
	}
	return n, nil
}

// Difference implements Comparer.
func (c *exactComparer) Difference() string {
	if !c.differs && c.at == len(c.want) {
		return ""
	}
	at := c.at
	for c.lines && !c.differs && at < len(c.want) && c.want[at] == '\n' {
		at++ // the line that is missing is a later one
	}
	begin := bytes.LastIndexByte(c.want[:at], '\n') + 1
	if c.extra > 0 {
		begin = at
	}
	want, got := c.want[begin:], append(slices.Clone(c.want[begin:at]), c.rest...)
	if end := bytes.IndexByte(want, '\n') + 1; end > 0 {
		want = want[:end]
	}
	line := 1 + bytes.Count(c.want[:at], []byte{'\n'}) + c.extra
	return fmt.Sprintf("stdout differs in line %d: expected %s, got %s", line, c.shown(want, at-begin), c.shown(got, at-begin))
}

// maxShown bounds the bytes of a line that are shown. before of them stand before the first difference.
const (
	maxShown = 80
	before   = 30
)

// shown quotes the part of a line around a column. A mark stands for what is left out.
func (c *exactComparer) shown(line []byte, column int) string {
	switch {
	case len(line) == 0:
		return "nothing"
	case c.lines && line[0] == '\n':
		return "an empty line"
	case c.lines:
		line = bytes.TrimSuffix(line, []byte{'\n'})
	}
	from, front, back := 0, "", ""
	if len(line) > maxShown && column > before {
		from, front = column-before, "…"
	}
	to := min(len(line), from+maxShown)
	for from > 0 && from < to && !utf8.RuneStart(line[from]) {
		from++
	}
	if to < len(line) {
		back = "…"
		for to > from && !utf8.RuneStart(line[to]) {
			to--
		}
	}
	return front + strconv.Quote(string(line[from:to])) + back
}

// isBlank reports whether b is white space within a line.
func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\v' || b == '\f' }

func isSpace(b byte) bool { return isBlank(b) || b == '\n' }

// trimLines returns text without white space at the end of each line and without empty lines at the end.
func trimLines(text []byte) []byte {
	var out []byte
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		out = append(append(out, bytes.TrimRightFunc(line, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) })...), '\n')
	}
	return bytes.TrimRight(out, "\n")
}

// linesComparer compares the form of the stream that trimLines would return. Blanks and ends of lines are held until it is known whether
// anything follows them.
type linesComparer struct {
	exactComparer
	// ends counts the ends of lines that are held. blanks come after them. No more of them are held than want has bytes.
	ends   int
	blanks []byte
}

// Write implements Comparer.
func (c *linesComparer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && !c.over {
		text := slices.IndexFunc(p, func(b byte) bool { return !isSpace(b) })
		if text < 0 {
			text = len(p)
		}
		for _, b := range p[:text] {
			switch {
			case b == '\n':
				c.ends, c.blanks = min(c.ends+1, len(c.want)+1), c.blanks[:0]
			case len(c.blanks) <= len(c.want):
				c.blanks = append(c.blanks, b)
			}
		}
		if p = p[text:]; len(p) == 0 {
			break
		}
		space := slices.IndexFunc(p, isSpace)
		if space < 0 {
			space = len(p)
		}
		for range c.ends {
			_, _ = c.exactComparer.Write([]byte{'\n'})
		}
		_, _ = c.exactComparer.Write(c.blanks)
		_, _ = c.exactComparer.Write(p[:space])
		c.ends, c.blanks, p = 0, c.blanks[:0], p[space:]
	}
	return n, nil
}

// maxNumber bounds the bytes of a word that is read as a number.
const maxNumber = 400

// wordComparer compares word by word.
type wordComparer struct {
	want      [][]byte
	tolerance Tolerance
	// longest bounds the bytes that are held of a word: one more than any word that could be equal has.
	longest  int
	at, line int
	word     []byte
	differs  string
}

func newWordComparer(want string, t Tolerance) *wordComparer {
	c := &wordComparer{want: bytes.FieldsFunc([]byte(want), func(r rune) bool { return r < 0x80 && isSpace(byte(r)) }), tolerance: t, longest: maxNumber}
	for _, word := range c.want {
		c.longest = max(c.longest, len(word))
	}
	return c
}

// Write implements Comparer.
func (c *wordComparer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && c.differs == "" {
		if isSpace(p[0]) {
			c.end()
			if p[0] == '\n' {
				c.line++
			}
			p = p[1:]
			continue
		}
		length := slices.IndexFunc(p, isSpace)
		if length < 0 {
			length = len(p)
		}
		c.word = append(c.word, p[:min(length, c.longest+1-len(c.word))]...)
		p = p[length:]
	}
	return n, nil
}

// end compares the word that has ended, if there is one.
func (c *wordComparer) end() {
	switch {
	case len(c.word) == 0:
		return
	case c.at == len(c.want):
		c.differs = fmt.Sprintf("stdout has more than the expected %d words: %s in line %d", len(c.want), quoted(c.word), c.line+1)
	case !sameWord(c.word, c.want[c.at], c.tolerance):
		c.differs = fmt.Sprintf("stdout differs in word %d, in line %d: expected %s, got %s", c.at+1, c.line+1, quoted(c.want[c.at]), quoted(c.word))
	}
	c.at++
	c.word = c.word[:0]
}

// Difference implements Comparer.
func (c *wordComparer) Difference() string {
	if c.differs == "" {
		c.end()
	}
	if c.differs == "" && c.at < len(c.want) {
		return fmt.Sprintf("stdout ends after %d of %d words: expected %s, got nothing", c.at, len(c.want), quoted(c.want[c.at]))
	}
	return c.differs
}

// quoted quotes the beginning of a word. A mark stands for what is left out.
func quoted(word []byte) string {
	const most = 40
	if len(word) <= most {
		return strconv.Quote(string(word))
	}
	return fmt.Sprintf("%.*q…", most, word)
}

// sameWord reports whether two words are equal, or are numbers within the tolerance. Infinities are equal if they have one sign, and all
// NaN are equal. Numbers beyond the range of a float64 are compared if they are whole numbers.
func sameWord(got, want []byte, t Tolerance) bool {
	if bytes.Equal(got, want) {
		return true
	}
	if len(got) > maxNumber || len(want) > maxNumber {
		return false
	}
	a, beyondA, okA := parseNumber(got)
	b, beyondB, okB := parseNumber(want)
	switch {
	case !okA || !okB:
		return false
	case math.IsNaN(a) || math.IsNaN(b):
		return math.IsNaN(a) && math.IsNaN(b)
	}
	if max(math.Abs(a), math.Abs(b)) >= 1<<53 {
		x, okX := new(big.Int).SetString(string(got), 10)
		y, okY := new(big.Int).SetString(string(want), 10)
		if okX && okY {
			return sameWhole(x, y, t)
		}
	}
	if beyondA || beyondB || math.IsInf(a, 0) || math.IsInf(b, 0) {
		return a == b && !beyondA && !beyondB
	}
	return math.Abs(a-b) <= max(t.Abs, t.Rel*math.Abs(b))
}

// sameWhole is sameWord for whole numbers, of which a float64 may not have all digits. The bound is rounded as that of other numbers.
func sameWhole(got, want *big.Int, t Tolerance) bool {
	const precision = 53 // of a float64
	distance := new(big.Float).SetPrec(precision).SetInt(new(big.Int).Sub(got, want))
	relative := new(big.Float).SetPrec(precision).SetInt(want)
	relative.Mul(relative, big.NewFloat(t.Rel))
	return distance.Abs(distance).Cmp(big.NewFloat(t.Abs)) <= 0 || distance.Cmp(relative.Abs(relative)) <= 0
}

// parseNumber reads a decimal number. A number beyond the range of a float64 is an infinity, and beyond is true.
func parseNumber(word []byte) (v float64, beyond, ok bool) {
	if bytes.ContainsAny(word, "_pP") { // digits in groups and hexadecimal numbers are Go's own forms
		return 0, false, false
	}
	v, err := strconv.ParseFloat(string(word), 64)
	beyond = err != nil && math.IsInf(v, 0)
	return v, beyond, err == nil || beyond
}
