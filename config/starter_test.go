package config

import (
	"regexp"
	"strings"
	"testing"
)

// TestStarter loads the first configuration of each bus with a feed, also with all its keys switched on.
func TestStarter(t *testing.T) {
	t.Parallel()
	switchedOff := regexp.MustCompile(`(?m)^#( {2,})`)
	for kind, address := range StarterAddresses {
		text, err := AddFeeds(Starter(kind, address, "127.0.0.1:9322"), map[string]NewFeed{"new": {URL: "https://new.example.com/feed"}})
		if err != nil || !strings.HasSuffix(string(text), "feeds:\n  new:\n    url: https://new.example.com/feed\n") {
			t.Errorf("%s: %v\n%s", kind, err, text)
		}
		all := switchedOff.ReplaceAll(text, []byte("$1"))
		if len(all) == len(text) {
			t.Errorf("%s: no key is switched off", kind)
		}
		for _, data := range [][]byte{text, all} {
			cfg, err := Load(Options{File: "feedbridge.yaml", Data: data})
			if err != nil {
				t.Errorf("%s: %v\n%s", kind, err, data)
			} else if bus := cfg.Buses["main"]; cfg.Admin.Listen != "127.0.0.1:9322" || (kind == "nats") != (bus.NATS != nil) || (kind == "kafka") != (bus.Kafka != nil) {
				t.Errorf("%s: another bus or address\n%s", kind, data)
			}
		}
	}
	cfg, err := Load(Options{File: "feedbridge.yaml", Data: Starter("kafka", "a:9092, [::1]:9092", "127.0.0.1:9322"), Feedless: true})
	if err != nil || len(cfg.Buses["main"].Kafka.Brokers) != 2 {
		t.Errorf("two brokers: %v", err)
	}
}
