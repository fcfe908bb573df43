package feedxml

import (
	"strings"
	"testing"
)

// BenchmarkRepair reads documents of 300 kB that consist of one fault after the other.
func BenchmarkRepair(b *testing.B) {
	const size = 300_000
	for name, piece := range map[string]string{"items": "<item>", "titles": "<item><title>x<guid>1", "ends": "</b>", "less": "<<"} {
		b.Run(name, func(b *testing.B) {
			doc := "<rss><channel>" + strings.Repeat(piece, size/len(piece)) + "</channel></rss>"
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = read(NewReader(strings.NewReader(doc), Options{Lenient: true}))
			}
		})
	}
}
