package ratio_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/python-executor/python-executor/tests/internal/ratio"
)

var (
	latency = ratio.Row{Name: "latency", Of: ratio.Term{Series: "ours"}, To: ratio.Term{Series: "peer"}, Limit: 1}
	rate    = ratio.Row{Name: "rate", Of: ratio.Term{Series: "ours"}, To: ratio.Term{Series: "peer"}, Limit: 2, AtLeast: true}
)

// machine makes runs of a machine whose samples vary by spread (the deviation of their logarithm), and which is sometimes slow for both sides.
type machine struct {
	random *rand.Rand
	spread float64
}

func (m machine) run(ours, peer float64, samples, repetitions int) ratio.Run {
	r := ratio.NewRun(time.Unix(0, 0))
	r.Repetitions = repetitions
	for i := range samples {
		slow := 1.0
		if i/10%4 == 3 {
			slow = 1.5
		}
		for name, value := range map[string]float64{"peer": peer, "ours": ours} {
			r.Samples[name] = append(r.Samples[name], value*slow*math.Exp(m.spread*m.random.NormFloat64()))
		}
	}
	return r
}

func (m machine) compare(t *testing.T, row ratio.Row, before, after float64) ratio.Comparison {
	t.Helper()
	base, now := m.run(before, 10, 120, 0), m.run(after, 10, 120, 3)
	c, ok := ratio.Compare(row, &now, []ratio.File{{Name: "bench/x.json", Run: base}})
	if !ok {
		t.Fatal("there is no comparison")
	}
	return c
}

func TestOnlyAChangeBeyondTheNoiseIsWorse(t *testing.T) {
	t.Parallel()
	const trials = 10
	for _, test := range []struct {
		name          string
		row           ratio.Row
		spread        float64
		before, after float64
		// least and most bound the trials that are worse.
		least, most int
	}{
		{"no change on a quiet machine", latency, 0.05, 4, 4, 0, 0},
		{"no change on a noisy machine", latency, 0.6, 4, 4, 0, 1},
		{"5 % slower is within the tolerance", latency, 0.05, 4, 4.2, 0, 0},
		{"30 % slower", latency, 0.07, 4, 5.2, trials, trials},
		{"30 % slower on a noisy machine may be chance", latency, 0.6, 4, 5.2, 0, trials / 2},
		{"30 % faster", latency, 0.1, 4, 2.8, 0, 0},
		{"three times slower on a noisy machine", latency, 0.6, 4, 12, trials - 1, trials},
		{"a rate that fell by a third", rate, 0.05, 3, 2, trials, trials},
		{"a rate that grew by a half", rate, 0.05, 2, 3, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			worse := 0
			for seed := range uint64(trials) {
				m := machine{rand.New(rand.NewPCG(seed, 7)), test.spread}
				if m.compare(t, test.row, test.before, test.after).Worse() {
					worse++
				}
			}
			if worse < test.least || worse > test.most {
				t.Errorf("%d of %d are worse, want %d to %d", worse, trials, test.least, test.most)
			}
		})
	}
}

func TestTheNoiseIsThatOfTheMachine(t *testing.T) {
	t.Parallel()
	noise := func(spread float64) float64 {
		run := machine{rand.New(rand.NewPCG(1, 1)), spread}.run(4, 10, 120, 0)
		m, ok := latency.Measure(&run)
		if !ok {
			t.Fatal("there is no ratio")
		}
		return m.Noise
	}
	// The ratio of two medians of 120 samples varies by about 1.25 × √(2/120) of their spread.
	for _, spread := range []float64{0.05, 0.4} {
		if got, want := noise(spread), spread*1.25*math.Sqrt(2.0/120); got < want/2 || got > want*2 {
			t.Errorf("spread %v: the noise is %.4f, want about %.4f", spread, got, want)
		}
	}
}

// Each start is as steady as can be, but no two are alike.
func TestTheRepetitionsCountForTheNoise(t *testing.T) {
	t.Parallel()
	run := ratio.NewRun(time.Unix(0, 0))
	for _, ours := range []float64{8, 10, 12} {
		for range 40 {
			run.Samples["ours"], run.Samples["peer"] = append(run.Samples["ours"], ours), append(run.Samples["peer"], 10)
		}
	}
	run.Repetitions = 3
	if m, _ := latency.Measure(&run); m.Noise < 0.1 {
		t.Errorf("the noise is %.3f", m.Noise)
	}
}

func TestARunWithTooFewSamplesIsAsNoisyAsTheOther(t *testing.T) {
	t.Parallel()
	single := ratio.NewRun(time.Unix(0, 0))
	single.Figures["ours"], single.Figures["peer"] = 4, 10
	if m, ok := latency.Measure(&single); !ok || m.Value != 0.4 || !math.IsNaN(m.Noise) {
		t.Errorf("%+v, %v", m, ok)
	}
	m := machine{rand.New(rand.NewPCG(1, 1)), 0.3}
	now := m.run(4, 10, 120, 0)
	measured, _ := latency.Measure(&now)
	c, _ := ratio.Compare(latency, &now, []ratio.File{{Run: single}})
	if want := math.Expm1(2 * math.Sqrt2 * measured.Noise); math.Abs(c.Noise-want) > 1e-9 {
		t.Errorf("the noise is %v, want %v", c.Noise, want)
	}
	if c, ok := ratio.Compare(latency, &single, []ratio.File{{Run: single}}); !ok || c.Noise != 0 || c.Worse() {
		t.Errorf("%+v, %v", c, ok)
	}
}

func TestARowIsComparedWithTheNewestRunThatHasIt(t *testing.T) {
	t.Parallel()
	with := func(ours float64, also string) ratio.Run {
		r := ratio.NewRun(time.Unix(0, 0))
		r.Figures["ours"], r.Figures[also] = ours, 10
		return r
	}
	now := with(4, "peer")
	c, ok := ratio.Compare(latency, &now, []ratio.File{{Name: "newest", Run: with(1, "another")}, {Name: "newer", Run: with(2, "peer")}, {Name: "old", Run: with(3, "peer")}})
	if !ok || c.File != "newer" || c.Base.Value != 0.2 || math.Abs(c.Change-1) > 1e-9 || !c.Worse() {
		t.Errorf("%+v, %v", c, ok)
	}
	if _, ok := ratio.Compare(latency, &now, nil); ok {
		t.Error("it was compared with nothing")
	}
	nothing := with(4, "another")
	if _, ok := ratio.Compare(latency, &nothing, []ratio.File{{Run: with(2, "peer")}}); ok {
		t.Error("a row that was not measured was compared")
	}
}

func TestATargetIsMetOnItsSide(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64][2]bool{0.9: {true, false}, 1: {true, false}, 1.5: {false, false}, 2: {false, true}} {
		if m := (ratio.Measured{Value: value}); latency.Met(m) != want[0] || rate.Met(m) != want[1] {
			t.Errorf("%v: at most 1: %v, at least 2: %v", value, latency.Met(m), rate.Met(m))
		}
	}
}

func TestARowMayBeAQuantileOrAValue(t *testing.T) {
	t.Parallel()
	run := ratio.NewRun(time.Unix(0, 0))
	for i := range 100 {
		run.Samples["ours"] = append(run.Samples["ours"], float64(i+1))
	}
	run.Rates["peer"] = []float64{10, 20, 30}
	for want, row := range map[float64]ratio.Row{
		5:  {Of: ratio.Term{Series: "ours", Quantile: 0.99}, To: ratio.Term{Series: "peer"}},
		51: {Of: ratio.Term{Series: "ours"}},
	} {
		if m, ok := row.Measure(&run); !ok || m.Value != want {
			t.Errorf("%v: %v, want %v", row, m.Value, want)
		}
	}
}
