package ratio

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Row is a ratio of two series, or a value of one, that the project holds itself to.
type Row struct {
	Name string
	// Of is divided by To. Without To the row is the value of Of.
	Of, To Term
	// Limit is the target: the ratio must be at most Limit, or with AtLeast at least Limit.
	Limit   float64
	AtLeast bool
	// Fast rows are measured by `make bench-check`.
	Fast bool
	// Skip is why the row cannot be measured yet; empty: it can.
	Skip string
}

// Term is a quantile of a series. The zero Quantile is the median.
type Term struct {
	Series   string
	Quantile float64
}

func (t Term) of(values []float64) float64 {
	if t.Quantile == 0 {
		return Quantile(values, 0.5)
	}
	return Quantile(values, t.Quantile)
}

// Measured is what a Run shows of a Row.
type Measured struct {
	Value float64
	// Noise is the standard error of the logarithm of Value: 0.05 means about 5 %. It is NaN if there are too few samples.
	Noise float64
}

// Met reports whether m reaches the target of the row.
func (row Row) Met(m Measured) bool {
	if row.AtLeast {
		return m.Value >= row.Limit
	}
	return m.Value <= row.Limit
}

// Uses reports whether the row needs a series.
func (row Row) Uses(series string) bool { return row.Of.Series == series || row.To.Series == series }

// Measure returns what run shows of the row. ok is false if run does not have its series.
func (row Row) Measure(run *Run) (m Measured, ok bool) {
	of, to := run.series(row.Of.Series), run.series(row.To.Series)
	if len(of) == 0 || row.To.Series != "" && len(to) == 0 {
		return Measured{}, false
	}
	noise := row.resampled(of, to)
	if between := row.between(of, to, run.Repetitions); between > noise {
		noise = between
	}
	return Measured{row.value(of, to), noise}, true
}

func (row Row) value(of, to []float64) float64 {
	if row.To.Series == "" {
		return row.Of.of(of)
	}
	return row.Of.of(of) / row.To.of(to)
}

const (
	// blocks bounds the blocks of consecutive samples that are drawn from. The samples of a block share what the machine did meanwhile.
	blocks    = 12
	minBlocks = 3
	resamples = 300
)

// resampled is the noise by a bootstrap over blocks. Both series are drawn from the same blocks, because they were measured in turns.
func (row Row) resampled(of, to []float64) float64 {
	count := min(blocks, len(of))
	if row.To.Series != "" {
		count = min(count, len(to))
	}
	if count < minBlocks {
		return math.NaN()
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same samples have the same noise
	logs := make([]float64, 0, resamples)
	for range resamples {
		var drawnOf, drawnTo []float64
		for range count {
			i := random.IntN(count)
			drawnOf, drawnTo = append(drawnOf, part(of, i, count)...), append(drawnTo, part(to, i, count)...)
		}
		logs = append(logs, math.Log(row.value(drawnOf, drawnTo)))
	}
	return deviation(logs)
}

// between is the noise by the spread of the ratios of the repetitions: a new start may be faster or slower than the last one.
func (row Row) between(of, to []float64, repetitions int) float64 {
	if repetitions < minBlocks || len(of) < repetitions || row.To.Series != "" && len(to) < repetitions {
		return math.NaN()
	}
	var logs []float64
	for i := range repetitions {
		logs = append(logs, math.Log(row.value(part(of, i, repetitions), part(to, i, repetitions))))
	}
	return deviation(logs) / math.Sqrt(float64(repetitions))
}

// part returns the part i of count about equal parts of a list.
func part(list []float64, i, count int) []float64 {
	return list[i*len(list)/count : (i+1)*len(list)/count]
}

func deviation(list []float64) float64 {
	var mean, sum float64
	for _, v := range list {
		mean += v / float64(len(list))
	}
	for _, v := range list {
		sum += (v - mean) * (v - mean)
	}
	return math.Sqrt(sum / float64(len(list)-1))
}

// Quantile returns the value at q (0 to 1) of a list in any order; 0 if it is empty.
func Quantile(list []float64, q float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
