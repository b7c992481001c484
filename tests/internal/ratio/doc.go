// Package ratio says what a run of the benchmark shows: the ratios of the rows, how much they vary by chance, and whether they
// are worse than in a former run.
//
// One flow: a Run collects series of samples. Row.Measure makes a ratio of two series, with its noise. Compare puts the ratio beside
// that of the newest committed run that has the row.
package ratio
