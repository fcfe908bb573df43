package admin

import (
	"math"
	"time"

	"github.com/feedbridge/feedbridge/internal/admin/status"
)

// activity counts by minute and by hour of the clock. It has about 550 bytes. A nil one is empty.
type activity struct {
	// perMinute counts the published entities of each minute until minute, which is a number of minutes
	// of Unix time; perMinute[minute%60] is the newest. perHour and hour are the same by hour.
	perMinute [60]uint32
	perHour   [status.Hours]hourCounts
	minute    int64
	hour      int64
}

type hourCounts struct {
	entities, errors uint32
	slowest          uint32 // commit, in milliseconds
}

// advance clears the counters that have begun since the last call.
func (a *activity) advance(now time.Time) {
	advanceRing(a.perMinute[:], &a.minute, now.Unix()/60)
	advanceRing(a.perHour[:], &a.hour, now.Unix()/3600)
}

func advanceRing[T any](ring []T, last *int64, now int64) {
	size := int64(len(ring))
	for n := max(*last+1, now-size+1); n <= now; n++ {
		clear(ring[n%size : n%size+1])
	}
	*last = max(*last, now)
}

func (a *activity) published(n int, took time.Duration, now time.Time) {
	a.advance(now)
	hour := &a.perHour[a.hour%status.Hours]
	add(&a.perMinute[a.minute%60], n)
	add(&hour.entities, n)
	hour.slowest = max(hour.slowest, uint32(min(took.Milliseconds(), math.MaxUint32)))
}

func (a *activity) failed(now time.Time) {
	a.advance(now)
	add(&a.perHour[a.hour%status.Hours].errors, 1)
}

func add(count *uint32, n int) { *count = uint32(min(uint64(*count)+uint64(n), math.MaxUint32)) }

// total returns the entities of the last n minutes.
func (a *activity) total(n int, now time.Time) (total uint64) {
	if a == nil {
		return 0
	}
	a.advance(now)
	for i := range int64(n) {
		total += uint64(a.perMinute[(a.minute-i)%60])
	}
	return total
}

// addTo adds the counts to those of other feeds.
func (a *activity) addTo(h *status.Hourly, now time.Time) {
	if a == nil {
		return
	}
	a.advance(now)
	for i := range h.Entities {
		c := a.perHour[(a.hour+1+int64(i))%status.Hours]
		h.Entities[i] += uint64(c.entities)
		h.Errors[i] += uint64(c.errors)
		h.SlowestCommit[i] = max(h.SlowestCommit[i], uint64(c.slowest))
	}
}
