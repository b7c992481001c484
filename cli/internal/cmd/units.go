package cmd

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// megabytes is the value of a flag for a size. The value is in MB (MiB), and may have a unit: 128, 128M, 1.5G.
type megabytes int64

// seconds is the value of a flag for a time. The value is in seconds, and may have units: 90, 0.5, 90s, 1h30m.
type seconds float64

// The units of sizes, in MB, and of times, in seconds.
var (
	sizeUnits = map[string]float64{"": 1, "B": 1.0 / (1 << 20), "K": 1.0 / (1 << 10), "M": 1, "G": 1 << 10, "T": 1 << 20}
	timeUnits = map[string]float64{"ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
)

const (
	sizeRule = "a number of MB, or a number with a unit, such as 512M, 1.5G or 1T"
	timeRule = "a number of seconds, or a number with a unit, such as 500ms, 90s, 15m, 1h30m or 2d"
)

var (
	sizeForm = regexp.MustCompile(`^([-+]?[0-9]+(?:\.[0-9]+)?)([BKMGT]?)(?:I?B)?$`)
	timePart = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)(ms|sec|s|min|m|h|d)`)
)

// String implements pflag.Value.
func (m *megabytes) String() string { return strconv.FormatInt(int64(*m), 10) }

// Type implements pflag.Value.
func (m *megabytes) Type() string { return "size" }

// Set implements pflag.Value.
func (m *megabytes) Set(text string) error {
	form := sizeForm.FindStringSubmatch(strings.ToUpper(text))
	if form == nil {
		return fmt.Errorf("must be %s", sizeRule)
	}
	if n, err := strconv.ParseInt(form[1], 10, 64); err == nil && sizeUnits[form[2]] == 1 {
		*m = megabytes(n) // a float64 has not all of its digits
		return nil
	}
	n, err := strconv.ParseFloat(form[1], 64)
	switch n *= sizeUnits[form[2]]; {
	case err != nil || math.Abs(n) >= math.MaxInt64:
		return fmt.Errorf("is too large")
	case n != math.Trunc(n):
		return fmt.Errorf("must be a whole number of MB (%s is %s MB)", text, strconv.FormatFloat(n, 'g', 4, 64))
	}
	*m = megabytes(n)
	return nil
}

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.FormatFloat(float64(*s), 'g', -1, 64) }

// Type implements pflag.Value.
func (s *seconds) Type() string { return "duration" }

// Set implements pflag.Value.
func (s *seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		*s = seconds(n)
		return nil
	}
	sum, rest := 0.0, strings.ToLower(text)
	for {
		part := timePart.FindStringSubmatch(rest)
		if part == nil {
			return fmt.Errorf("must be %s", timeRule)
		}
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			return err
		}
		sum += n * timeUnits[part[2]]
		if rest = rest[len(part[0]):]; rest == "" {
			*s = seconds(sum)
			return nil
		}
	}
}

// shares is the value of --cpus: a number of CPUs, of which each is 1024 shares.
type shares struct{ to *int64 }

// String implements pflag.Value.
func (s shares) String() string { return "" }

// Type implements pflag.Value.
func (s shares) Type() string { return "number" }

// Set implements pflag.Value.
func (s shares) Set(text string) error {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !(n > 0) || n*1024 >= math.MaxInt64 {
		return fmt.Errorf("must be a number > 0, such as 1.5")
	}
	*s.to = max(1, int64(math.Round(n*1024)))
	return nil
}
