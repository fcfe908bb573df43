package config

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/feedbridge/feedbridge/internal/testkit/must"
)

func TestSetGoesBeforeEnvironment(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{
		File:    "testdata/full.good.yaml",
		Environ: []string{"FEEDBRIDGE_FEEDS_MY_ORDERS_EVERY=7s"},
		Set: []string{
			"feeds.my-orders.every=8s", "feeds.my-orders.every=9s", "feeds.my-orders.allow_hosts=a.example.com, b.example.com",
			"feeds.news.url=" + shop, "feeds.news.to.bus=here", "log.level=debug", "admin.listen=", "admin.token=file:/run/token",
		},
	})
	must.Succeed(t, err)
	orders := got.Feeds["my-orders"]
	if orders.Every != 9*time.Second {
		t.Errorf("every = %v, want that of the last --set", orders.Every)
	}
	must.Match(t, "allow_hosts", []string{"a.example.com", "b.example.com"}, orders.Source.AllowHosts)
	if got.Feeds["news"].Source.URL != shop || got.Log.Level != "debug" || got.Admin.Listen != "" {
		t.Errorf("a new feed, log.level and admin.listen are not set: %+v", got)
	}
}

func TestTopicOfURL(t *testing.T) {
	t.Parallel()
	got, err := Load(Options{URL: "https://shop.example.com/", Topic: "orders"})
	if err != nil || got.Feeds["shop-example-com"].To.Topic != "orders" {
		t.Errorf("got %+v, %v, want the topic orders", got, err)
	}
	_, err = Load(Options{URL: "https://shop.example.com/", Topic: "or ders"})
	if err == nil || !strings.HasPrefix(err.Error(), "--topic: feeds.shop-example-com.to.topic: ") {
		t.Errorf("got %v, want an error about --topic", err)
	}
}

func TestSetErrors(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"feeds":                   `want KEY=VALUE, such as feeds.orders.every=30s, not "feeds"`,
		"admin.token: geheim":     `want KEY=VALUE, such as feeds.orders.every=30s, not "admin.token…"`,
		"evry=3":                  "evry: unknown key; want one of: ",
		"feeds.orders.evry=3s":    `feeds.orders.evry: unknown key; did you mean "every"?`,
		"feeds.orders.every=3":    "feeds.orders.every: want a duration with a unit, such as 30s",
		"feeds.Orders.every=3s":   `feeds.Orders.every: a name has only lower-case letters, digits and -, and starts with a letter; try "orders"`,
		"feeds.orders.every.x=3s": "feeds.orders.every.x: every has no keys",
		"feeds.orders.limits=3":   "feeds.orders.limits: this is a mapping; set one of its keys: ",
		"feeds=orders":            "feeds: this is a mapping of names; set a key below a name in it",
		"feeds.orders.auth.basic.password=geheim": "feeds.orders.auth.basic.password: a command line can be read by everyone on the machine; " +
			"set secrets as file:PATH, in the file, by ${NAME} in it, or by the variable FEEDBRIDGE_FEEDS_<NAME>_AUTH_BASIC_PASSWORD",
		"feeds.orders.headers=Authorization: geheim": "feeds.orders.headers: a command line can be read by everyone",
		"feeds.orders.to.topic=\xff":                 "feeds.orders.to.topic: the value is not UTF-8",
	} {
		_, err := Load(Options{Environ: []string{"FEEDBRIDGE_FEEDS_ORDERS_URL=" + shop}, Set: []string{setting}})
		if err == nil || !strings.HasPrefix(err.Error(), "--set: "+want) {
			t.Errorf("%q: got %v\nwant --set: %s", setting, err, want)
			continue
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: the error has the secret: %v", setting, err)
		}
		if errs, _ := errors.AsType[Errors](err); len(errs) != 1 {
			t.Errorf("%q: %d errors, want one:\n%v", setting, len(errs), err)
		}
	}
}

// Values outside of the bounds are refused, and the schema and the error for a text name them.
func TestBounds(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"feeds.orders.dedupe_window=0":        "must be from 1 to 10000000",
		"feeds.orders.dedupe_window=1":        "",
		"feeds.orders.dedupe_window=10000000": "",
		"feeds.orders.dedupe_window=10000001": "must be from 1 to 10000000",
		"feeds.orders.dedupe_window=many":     "want a whole number from 1 to 10000000",
		"feeds.orders.to.stream.replicas=6":   "must be from 1 to 5",
		"feeds.orders.to.stream.replicas=0":   "must be from 1 to 5",
		"feeds.orders.freshness=-1s":          "must not be negative",
		"feeds.orders.to.stream.max_age=-1s":  "must not be negative",
		"feeds.orders.to.stream.max_bytes=-1": "must not be negative",
		"feeds.orders.every=99ms":             "must be 100ms or more",
		"buses.main.kafka.timeout=999ms":      "must be from 1s to 5m",
		"buses.main.kafka.timeout=5m1s":       "must be from 1s to 5m",
		"grace=-1s":                           "must not be negative",
		"memory=524287":                       "must be 524288 or more",
		"memory=524288":                       "",
	} {
		_, err := Load(Options{Environ: []string{"FEEDBRIDGE_FEEDS_ORDERS_URL=" + shop}, Set: []string{setting}})
		key, _, _ := strings.Cut(setting, "=")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), "--set: "+key+": "+want)) {
			t.Errorf("%s: got %v, want %q", setting, err, want)
		}
	}
}
