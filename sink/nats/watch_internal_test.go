package nats

import (
	"testing"
	"time"
)

// The tests with a server cannot restore a shared stream without a reconnect.
func TestALookIsComparedWithWhatIsKnown(t *testing.T) {
	ses, created, at := &session{}, time.Unix(1, 0), time.Unix(100, 0)
	seen := func(first, last uint64) look {
		return look{at: at, session: ses, created: created, lastTime: time.Unix(int64(last), 0), first: first, last: last, entries: last - first + 1}
	}
	known := watchedTopic{session: ses, created: created, checkpoint: 5, last: 10, until: time.Now().Add(time.Hour)}
	for name, test := range map[string]struct {
		before, now look
		created     time.Time
		want        bool
	}{
		"it has grown":                                      {seen(1, 10), seen(1, 20), created, true},
		"it has lost its oldest messages":                   {seen(1, 20), seen(4, 20), created, true},
		"it was created again before the first look":        {look{}, seen(1, 20), created.Add(1), false},
		"it went back before the first look":                {look{}, seen(1, 9), created, false},
		"it went back and has grown again since":            {seen(1, 30), seen(1, 20), created, false},
		"it went back to what was there at the look before": {seen(1, 8), seen(1, 9), created, false},
	} {
		stream := &openStream{}
		test.now.created = test.created
		if test.before.at != (time.Time{}) {
			stream.recordLook(test.before)
		}
		stream.recordLook(test.now)
		if got := known.confirmedBy(stream.lastLook(), true).Equal(at); got != test.want {
			t.Errorf("%s: a look confirms the checkpoint: %v, want %v", name, got, test.want)
		}
	}
}
