package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// BenchmarkBody copies an RSS feed of 20,000 items with 2 KiB of HTML each to a NATS server, in turn with bodies in XML
// and in JSON, each time in a process of its own. It reports the medians of the processor times for 100,000 items,
// and of the ratios of copies that ran one after the other.
func BenchmarkBody(b *testing.B) {
	const items = 20_000
	var doc bytes.Buffer
	doc.WriteString(`<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>x</title><link>https://x.example/</link>`)
	text := strings.Repeat("<p>Some text of an entry, with <b>HTML</b> in it.</p>\n", 40)
	for i := items; i > 0; i-- {
		at := time.Date(2026, 3, 1, 0, 0, i, 0, time.UTC).Format(time.RFC1123Z)
		fmt.Fprintf(&doc, "<item><title>Entry %d</title><link>https://x.example/%d</link><guid>https://x.example/%d</guid><pubDate>%s</pubDate>"+
			"<category>news</category><dc:creator>A</dc:creator><description><![CDATA[%s]]></description></item>\n", i, i, i, at, text)
	}
	doc.WriteString("</channel></rss>")
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(doc.Bytes()) }))
	b.Cleanup(upstream.Close)
	natsURL, _ := startServer(b, "nats", b.TempDir(), "-1")
	_, js := openJetStream(b, natsURL)
	results := map[string][]copyResult{}
	for n := 0; b.Loop(); n++ {
		for _, body := range []string{"xml", "json"} {
			c := copyComparison{
				length: items, feedURL: upstream.URL,
				env:     map[string]string{"BUSES_MAIN_NATS_URL": natsURL, "FEEDS_BENCH_BODY": body},
				rate:    func(topic string) float64 { return streamRate(b, js, topic, items) },
				arrived: func(topic string) int { return streamLength(b, js, topic) },
			}
			results[body] = append(results[body], c.runFeedbridge(b, "", fmt.Sprintf("body-%s-%d", body, n)))
		}
	}
	cpu := func(r copyResult) float64 { return r.cpu }
	for body, all := range results {
		b.ReportMetric(medianOf(all, cpu), body+"-cpu-s/100k")
	}
	b.ReportMetric(medianRatio(results["json"], results["xml"], cpu), "cpu-of-xml")
	b.ReportMetric(0, "ns/op")
}
