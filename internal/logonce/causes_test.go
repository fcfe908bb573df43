package logonce

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestCauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Causes
		for _, step := range []struct {
			after   time.Duration
			text    string // "" for a success
			isNew   bool   // or that there was a failure before the success
			repeats int
		}{
			{0, "", false, 0},
			{0, "port 4711 refused", true, 0},
			{time.Second, "port 4712 refused", false, 0},
			{0, "timeout", true, 0},
			{Reminder - 2*time.Second, "port 1 refused", false, 0},
			{time.Second, "port 1 refused", true, 2},
			{0, "", true, 0},
			{0, "", false, 0},
			{0, "port 2 refused", true, 0},
		} {
			time.Sleep(step.after)
			var isNew bool
			var repeats int
			if step.text == "" {
				isNew = c.End()
			} else {
				isNew, repeats = c.Add(step.text)
			}
			if isNew != step.isNew || repeats != step.repeats {
				t.Errorf("%q: %v, %d, want %v, %d", step.text, isNew, repeats, step.isNew, step.repeats)
			}
		}
	})
}

// Causes are bounded, even if the text is another one each time.
func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Causes
		logged := 0
		for round := range 2 {
			for i := range 3 * mostCauses {
				text := fmt.Sprintf("%c%c%c%c", 'a'+round, 'a'+i%26, 'a'+i/26%26, 'a'+i/676)
				if isNew, _ := c.Add(text); isNew {
					logged++
				}
			}
			time.Sleep(Reminder)
		}
		if logged != 2*mostCauses || len(c.logged) != mostCauses {
			t.Errorf("%d lines, %d causes", logged, len(c.logged))
		}
	})
}
