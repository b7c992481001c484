package ratio

import "math"

// Tolerance is how much worse a row may be than before, besides the noise: 0.15 means 15 %.
const Tolerance = 0.15

// certainty is the number of standard errors that count as noise.
const certainty = 2

// Comparison is a Row of a Run beside a former Run.
type Comparison struct {
	Row  Row
	Now  Measured
	Base Measured
	// File is where Base is from.
	File string
	// Change is how much worse the row is: 0.3 means 30 % worse, a negative value means better.
	Change float64
	// Noise is the part of Change that may be chance.
	Noise float64
}

// Worse reports whether the row is worse by more than Tolerance beyond the noise.
func (c Comparison) Worse() bool { return c.Change > c.Noise+Tolerance }

// Compare puts what run shows of a row beside the first of files that has the row. ok is false if run does not have it, or no file does.
func Compare(row Row, run *Run, files []File) (c Comparison, ok bool) {
	now, ok := row.Measure(run)
	if !ok {
		return c, false
	}
	for i := range files {
		base, ok := row.Measure(&files[i].Run)
		if !ok {
			continue
		}
		c = Comparison{Row: row, Now: now, Base: base, File: files[i].Name}
		worse := math.Log(now.Value / base.Value)
		if row.AtLeast {
			worse = -worse
		}
		c.Change = math.Expm1(worse)
		c.Noise = math.Expm1(certainty * math.Hypot(known(now.Noise, base.Noise), known(base.Noise, now.Noise)))
		return c, true
	}
	return c, false
}

// known returns the noise of one run. A run with too few samples is taken to be as noisy as the other one.
func known(noise, other float64) float64 {
	switch {
	case !math.IsNaN(noise):
		return noise
	case !math.IsNaN(other):
		return other
	}
	return 0
}
