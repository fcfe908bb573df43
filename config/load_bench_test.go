package config

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkLoad loads 10,000 feeds: with few keys each, as most files have them, or with many.
func BenchmarkLoad(b *testing.B) {
	for name, keys := range map[string]string{
		"few":  "    to: {topic: news.f%[1]d}\n",
		"many": "    headers: [\"X-Api-Key: %[1]d\"]\n    auth: {basic: {username: me, password: \"%[1]d\"}}\n    format: atom\n    every: 20s\n    limits: {rate: 7}\n    to: {topic: news.f%[1]d, stream: {max_age: 48h}}\n",
	} {
		b.Run(name, func(b *testing.B) {
			var text strings.Builder
			text.WriteString("feed_defaults:\n  every: 30s\n  to: {stream: {max_age: 24h}}\nfeeds:\n")
			for i := range 10_000 {
				fmt.Fprintf(&text, "  feed-%[1]d:\n    url: https://feeds.example.com/%[1]d\n"+keys, i)
			}
			data := []byte(text.String())
			for b.Loop() {
				if _, err := Load(Options{File: "f.yaml", Data: data}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
