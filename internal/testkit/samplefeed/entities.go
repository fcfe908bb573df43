package samplefeed

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/feedbridge/feedbridge/feed"
)

// sizedStart is the time of the first entity of [Sized]. It is long enough ago for a
// benchmark's hundred million entities to be in the past.
var sizedStart = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// sizedPerSecond is the number of entities of [Sized] in each second.
const sizedPerSecond = 4

// Sized returns entities for benchmarks: PUT, with bodies of n bytes, IDs such as "17@sample",
// and four to each second. Snappy compresses the bodies to half, each by itself or many together: as
// JSON would be, they are field names and words that repeat, and values that do not. Bodies share memory.
func Sized(n int) func(i int) feed.Entity {
	bodies := sync.OnceValue(func() []byte { return sizedText(n + sizedPeriod) })
	header := feed.Header{{Name: "Content-Type", Value: "text/plain"}}
	return func(i int) feed.Entity {
		from := i * max(n, 1) % sizedPeriod
		return feed.Entity{
			ID:       strconv.Itoa(i) + "@sample",
			Op:       feed.Put,
			Modified: sizedStart.Add(time.Duration(i/sizedPerSecond) * time.Second),
			Header:   header,
			Body:     bodies()[from : from+n : from+n],
		}
	}
}

// sizedPeriod is the number of bytes after which the text of [Sized] repeats. That is farther than
// snappy looks back, and prime, so that a body comes again after so many entities only.
const sizedPeriod = 4_194_301

// sizedText returns n bytes of lines with 16 random letters and 24 equal bytes each.
func sizedText(n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	dice := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, 0, n+40)
	for len(text) < n {
		for range 2 {
			bits := dice.Uint64()
			for range 8 {
				text = append(text, letters[bits%64])
				bits >>= 6
			}
		}
		text = append(text, `","note":"packed","id":"`...)
	}
	return text[:n]
}
