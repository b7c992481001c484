package strictjson

import "testing"

func TestHalfOfAPairIsFound(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		`"a"`: false, `"\ud83d\ude00"`: false, `"\u00e9\\ud800"`: false, `"\ufffd"`: false, `"\"\ud83d\uDE00\n"`: false, ``: false, `"\u00`: false, `\`: false,
		`"\ud800"`: true, `"\udc00\ud800"`: true, `"\ud83dx"`: true, `"\ud83d\n"`: true, `"\\\ud83d"`: true, `"\ud83d\ud83d\ude00"`: true,
	} {
		if got := HasHalfPair([]byte(raw)); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}
