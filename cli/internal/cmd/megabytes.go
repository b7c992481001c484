package cmd

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// megabytes is the value of a flag for a size. The value is in MB (MiB), and may have a unit: 128, 128M, 2G.
type megabytes int64

// String implements pflag.Value.
func (m *megabytes) String() string { return strconv.FormatInt(int64(*m), 10) }

// Type implements pflag.Value.
func (m *megabytes) Type() string { return "MB" }

// Set implements pflag.Value.
func (m *megabytes) Set(text string) error {
	number := strings.ToUpper(text)
	factor := int64(1)
	for _, unit := range []string{"MIB", "MB", "M", "GIB", "GB", "G"} {
		if rest, ok := strings.CutSuffix(number, unit); ok {
			if number = rest; unit[0] == 'G' {
				factor = 1 << 10
			}
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return err
	}
	if n > math.MaxInt64/factor || n < math.MinInt64/factor {
		return errors.New("too large")
	}
	*m = megabytes(n * factor)
	return nil
}
