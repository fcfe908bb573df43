package config

import "testing"

// The default source is a URI without secrets.
func TestSourceOfCloudEvents(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ url, want string }{
		{"https://shop.example.com/feed", "https://shop.example.com/feed"},
		{"https://shop.example.com/feed?api_key=1&x=2", "https://shop.example.com/feed?api_key=***&x=2"},
		{"https://shop.example.com/ä?q={c}", "https://shop.example.com/%C3%A4?q=%7Bc%7D"},
	} {
		cfg, err := Load(Options{Environ: []string{"FEEDBRIDGE_FEEDS_A_URL=" + test.url, "FEEDBRIDGE_FEEDS_A_TO_CLOUDEVENTS=true"}})
		if err != nil {
			t.Fatal(err)
		}
		to := cfg.Feeds["a"].To
		if got := to.Events(); got == nil || got.Source != test.want || got.Type != "feedbridge.entity" {
			t.Errorf("events of %s are %+v, want the source %s", test.url, got, test.want)
		}
		to.CloudEvents = false
		if to.Events() != nil {
			t.Error("there are events that are not enabled")
		}
	}
}
