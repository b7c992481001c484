package batch

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/python-executor/python-executor/core/executor"
)

var compares = []Compare{CompareExact, CompareLines, CompareFloat}

// compared feeds got in pieces of at most size bytes.
func compared(how Compare, want, got string, t Tolerance, size int) string {
	c := NewComparer(how, want, t)
	for len(got) > 0 {
		n := min(size, len(got))
		_, _ = c.Write([]byte(got[:n]))
		got = got[n:]
	}
	return c.Difference()
}

func TestOutputIsCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		how       Compare
		want, got string
		tolerance Tolerance
		// detail is a part of the difference; "" = none.
		detail string
	}{
		{name: "exact", how: CompareExact, want: "a\nb\n", got: "a\nb\n"},
		{name: "lines by default", want: "a\n", got: "a \r"},
		{name: "exact: the last end of line", how: CompareExact, want: "a\n", got: "a", detail: `line 1: expected "a\n", got "a"`},
		{name: "exact: nothing", how: CompareExact, want: "", got: ""},
		{name: "exact: more", how: CompareExact, want: "a\n", got: "a\nb", detail: `line 2: expected nothing, got "b"`},
		{name: "exact: more than nothing", how: CompareExact, want: "", got: "x", detail: `line 1: expected nothing, got "x"`},
		{name: "exact: too few", how: CompareExact, want: "a\nb\n", got: "a\n", detail: `line 2: expected "b\n", got nothing`},
		{name: "exact: a long line", how: CompareExact, want: strings.Repeat("é", 99) + "1" + strings.Repeat("z", 99), got: strings.Repeat("é", 99) + "2" + strings.Repeat("z", 99), detail: `expected …"` + strings.Repeat("é", 15) + "1" + strings.Repeat("z", 49) + `"…, got …"` + strings.Repeat("é", 15) + "2" + strings.Repeat("z", 49) + `"…`},
		{name: "exact: another byte", how: CompareExact, want: "a\nbc\n", got: "a\nbd\n", detail: `line 2: expected "bc\n", got "bd\n"`},
		{name: "exact: bytes that are no text", how: CompareExact, want: "\xff\x00", got: "\xff\x00"},

		{name: "lines: the last end of line", how: CompareLines, want: "a\nb", got: "a\nb\n"},
		{name: "lines: empty lines at the end", how: CompareLines, want: "a\n", got: "a \t\r\n\n  \n"},
		{name: "lines: the ends of lines of Windows", how: CompareLines, want: "a\nb\n", got: "a\r\nb\r\n"},
		{name: "lines: white space at the beginning counts", how: CompareLines, want: "a", got: " a", detail: `line 1: expected "a", got " a"`},
		{name: "lines: white space inside counts", how: CompareLines, want: "a b", got: "a  b", detail: "differs in line 1"},
		{name: "lines: a line of white space between", how: CompareLines, want: "a\n\nb", got: "a\n \t\nb"},
		{name: "lines: an empty line more", how: CompareLines, want: "a\nb", got: "a\n\nb", detail: `line 2: expected "b", got an empty line`},
		{name: "lines: an empty line less", how: CompareLines, want: "a\n\nb", got: "a\nb", detail: `line 2: expected an empty line, got "b"`},
		{name: "lines: an empty line before", how: CompareLines, want: "a", got: "\na", detail: "differs in line 1"},
		{name: "lines: only white space", how: CompareLines, want: "", got: " \n\n"},
		{name: "lines: too few", how: CompareLines, want: "a\nb", got: "a\n", detail: `line 2: expected "b", got nothing`},
		{name: "lines: too many", how: CompareLines, want: "a", got: "a\nb c\nd", detail: `line 2: expected nothing, got "b c"`},
		{name: "lines: nothing", how: CompareLines, want: "a\n", got: "\n", detail: `line 1: expected "a", got nothing`},
		{name: "lines: too short", how: CompareLines, want: "ab\nc", got: "a\nc", detail: `line 1: expected "ab", got "a"`},
		{name: "lines: too long", how: CompareLines, want: "a\nc", got: "ab\nc", detail: `line 1: expected "a", got "ab"`},
		{name: "lines: a flood of white space", how: CompareLines, want: "a", got: "a" + strings.Repeat(" \n", 5000)},
		{name: "lines: a flood of white space before text", how: CompareLines, want: "a b", got: "a" + strings.Repeat(" ", 5000) + "b", detail: "differs in line 1"},

		{name: "float: equal words", how: CompareFloat, want: "yes 1.5\n", got: "yes  1.5"},
		{name: "float: another form", how: CompareFloat, want: "0.5 100", got: "5e-1\n1E2"},
		{name: "float: within abs", how: CompareFloat, want: "1.0", got: "1.0009", tolerance: Tolerance{Abs: 1e-3}},
		{name: "float: beyond abs", how: CompareFloat, want: "1.0", got: "1.002", tolerance: Tolerance{Abs: 1e-3}, detail: `word 1, in line 1: expected "1.0", got "1.002"`},
		{name: "float: within rel", how: CompareFloat, want: "1000000", got: "1000900", tolerance: Tolerance{Rel: 1e-3}},
		{name: "float: beyond rel", how: CompareFloat, want: "1000000", got: "1002000", tolerance: Tolerance{Rel: 1e-3}, detail: "word 1"},
		{name: "float: rel is of the expected number", how: CompareFloat, want: "100", got: "111", tolerance: Tolerance{Rel: 0.1}, detail: "word 1"},
		{name: "float: rel of a negative number", how: CompareFloat, want: "-1000", got: "-1000.5", tolerance: Tolerance{Rel: 1e-3}},
		{name: "float: the larger bound counts", how: CompareFloat, want: "0", got: "1e-7", tolerance: Tolerance{Abs: 1e-6, Rel: 1e-9}},
		{name: "float: no tolerance", how: CompareFloat, want: "1", got: "1.0000001", detail: "word 1"},
		{name: "float: whole numbers that no float64 tells apart", how: CompareFloat, want: "9007199254740992", got: "9007199254740993", detail: "word 1"},
		{name: "float: whole numbers beyond 2^53 within abs", how: CompareFloat, want: "-9007199254740992", got: "-9007199254740993", tolerance: Tolerance{Abs: 1}},
		{name: "float: whole numbers that become others as float64, within abs", how: CompareFloat, want: "9007199254740992", got: "9007199254740995", tolerance: Tolerance{Abs: 3}},
		{name: "float: whole numbers that become others as float64, beyond abs", how: CompareFloat, want: "9007199254740993", got: "9007199254740990", tolerance: Tolerance{Abs: 2}, detail: "word 1"},
		{name: "float: a large whole number with a sign", how: CompareFloat, want: "9007199254740993", got: "+9007199254740993"},
		{name: "float: NaN", how: CompareFloat, want: "nan", got: "NaN"},
		{name: "float: NaN is no number", how: CompareFloat, want: "1", got: "nan", tolerance: Tolerance{Abs: 1e300}, detail: "word 1"},
		{name: "float: infinities", how: CompareFloat, want: "inf -inf", got: "Infinity -Inf"},
		{name: "float: the other infinity", how: CompareFloat, want: "inf", got: "-inf", tolerance: Tolerance{Rel: 1}, detail: "word 1"},
		{name: "float: a finite number is not infinite", how: CompareFloat, want: "inf", got: "1e300", tolerance: Tolerance{Rel: 1}, detail: "word 1"},
		{name: "float: another whole number beyond all float64", how: CompareFloat, want: "1" + strings.Repeat("0", 320), got: "2" + strings.Repeat("0", 320), detail: "word 1"},
		{name: "float: a large whole number, just within rel", how: CompareFloat, want: "1000000000000000000", got: "1000001000000000000", tolerance: Tolerance{Rel: 1e-6}},
		{name: "float: a large negative whole number, within rel", how: CompareFloat, want: "-1000000000000000000", got: "-1000000000000000001", tolerance: Tolerance{Rel: 1e-6}},
		{name: "float: a whole number beyond all float64, within rel", how: CompareFloat, want: "1" + strings.Repeat("0", 320), got: "1" + strings.Repeat("0", 319) + "1", tolerance: Tolerance{Rel: 1e-300}},
		{name: "float: a whole number beyond all float64, beyond rel", how: CompareFloat, want: "1" + strings.Repeat("0", 320), got: "11" + strings.Repeat("0", 319), tolerance: Tolerance{Rel: 1e-2}, detail: "word 1"},
		{name: "float: a number beyond all float64 that is not whole", how: CompareFloat, want: "1e400", got: "2e400", tolerance: Tolerance{Rel: 1}, detail: "word 1"},
		{name: "float: a number beyond all float64 is not infinite", how: CompareFloat, want: "inf", got: "1e400", detail: "word 1"},
		{name: "float: the largest numbers of both signs", how: CompareFloat, want: "1e308", got: "-1e308", tolerance: Tolerance{Rel: 2}},
		{name: "float: a number below all float64", how: CompareFloat, want: "0", got: "1e-400"},
		{name: "float: other text", how: CompareFloat, want: "yes", got: "no", tolerance: Tolerance{Abs: 1}, detail: "word 1"},
		{name: "float: a hexadecimal number", how: CompareFloat, want: "16", got: "0x1p4", tolerance: Tolerance{Abs: 1}, detail: "word 1"},
		{name: "float: digits in groups", how: CompareFloat, want: "1000", got: "1_000", tolerance: Tolerance{Abs: 1}, detail: "word 1"},
		{name: "float: a long word is no number", how: CompareFloat, want: strings.Repeat("0", maxNumber) + "1", got: "1", detail: "word 1"},
		{name: "float: a long word that goes on", how: CompareFloat, want: strings.Repeat("a", 2*maxNumber), got: strings.Repeat("a", 2*maxNumber+1), detail: "word 1"},
		{name: "float: too few", how: CompareFloat, want: "1 2 3", got: "1 2 ", detail: `ends after 2 of 3 words: expected "3", got nothing`},
		{name: "float: too many", how: CompareFloat, want: "1", got: "1 2", detail: "more than the expected 1 words"},
		{name: "float: more than nothing", how: CompareFloat, want: "", got: "1", detail: "more than the expected 0 words"},
		{name: "float: a flood without an end", how: CompareFloat, want: "1", got: strings.Repeat("1", 100_000), tolerance: Tolerance{Rel: 1}, detail: "word 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, size := range []int{1, 2, 3, 1 << 20} {
				got := compared(c.how, c.want, c.got, c.tolerance, size)
				if (got == "") != (c.detail == "") || !strings.Contains(got, c.detail) {
					t.Errorf("in pieces of %d: %q, want %q", size, got, c.detail)
				}
			}
		})
	}
}

// What is held of a stream is bounded by what is expected.
func TestAFloodIsComparedInBoundedMemory(t *testing.T) {
	t.Parallel()
	for _, how := range compares {
		for _, piece := range []string{"1", " ", "\n", "a ", "\xff"} {
			c := NewComparer(how, "1 2\n3", Tolerance{})
			for range 10_000 {
				_, _ = c.Write([]byte(strings.Repeat(piece, 100)))
			}
			held := 0
			switch c := c.(type) {
			case *linesComparer:
				held = cap(c.blanks) + c.ends + cap(c.rest)
			case *exactComparer:
				held = cap(c.rest)
			case *wordComparer:
				held = cap(c.word)
			}
			if held > 2*maxNumber {
				t.Errorf("%s of %q: %d bytes are held", how, piece, held)
			}
		}
	}
}

// FuzzCompare checks that the pieces in which a stream arrives do not matter, that a text equals itself, and that white space at the ends of
// lines is ignored where it is to be.
func FuzzCompare(f *testing.F) {
	f.Add("a\nb \n\n", "a\nb", uint64(1))
	f.Add("1.0 2e3", "1 2000\n", uint64(2))
	f.Add(" \r\n", "\xff", uint64(3))
	f.Fuzz(func(t *testing.T, want, got string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
		for _, how := range compares {
			whole := compared(how, want, got, Tolerance{Rel: 0.1}, len(got)+1)
			if pieces := compared(how, want, got, Tolerance{Rel: 0.1}, 1+random.IntN(7)); pieces != whole {
				t.Errorf("%s: %q in pieces, %q at once", how, pieces, whole)
			}
			if d := compared(how, want, want, Tolerance{}, 1+random.IntN(7)); d != "" {
				t.Errorf("%s: a text differs from itself: %s", how, d)
			}
		}
		same := string(trimLines([]byte(want))) == string(trimLines([]byte(got)))
		if d := compared(CompareLines, want, got, Tolerance{}, 5); (d == "") != same {
			t.Errorf("lines: %q, but the trimmed texts are equal: %t", d, same)
		}
		if d := compared(CompareExact, want, got, Tolerance{}, 5); (d == "") != (want == got) {
			t.Errorf("exact: %q", d)
		}
	})
}

func TestOnlyStdoutIsCompared(t *testing.T) {
	t.Parallel()
	want := "a"
	j := newJudge(Expect{Stdout: &want})
	for _, stream := range []executor.Stream{executor.Stderr, executor.Stdout} {
		j.see(executor.Event{Body: executor.Output{Stream: stream, Data: []byte("a")}})
	}
	x := executor.Execution{Status: executor.StatusSucceeded, Result: &executor.Result{ExitCode: new(int)}}
	if v, detail := j.verdict(x); v != Passed {
		t.Errorf("%s: %s", v, detail)
	}
}

func TestAToleranceIsFinite(t *testing.T) {
	t.Parallel()
	stdout := "1"
	for _, v := range []float64{-1, math.NaN(), math.Inf(1)} {
		var bad executor.Problems
		b := Batch{Cases: []Case{{Expect: Expect{Stdout: &stdout, Compare: CompareFloat, Tolerance: Tolerance{Rel: v}}}}}
		b.Check(&bad)
		if err := bad.Err(executor.Invalid, "", "; "); err == nil || !strings.Contains(err.Error(), "tolerance_rel: must be a finite number") {
			t.Errorf("%v: %v", v, err)
		}
	}
}
