package setting

import (
	"reflect"
	"testing"
	"time"
)

type word string

func (word) Values() []string { return []string{"info", "warn"} }

func TestTextOfValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value   any
		text    string
		refused []string
	}{
		{true, "true", []string{"", "yes", "True", "1"}},
		{1000, "1000", []string{"", "1_000", "0x10", "1e3", "99999999999999999999"}},
		{int64(-7), "-7", []string{"7 ", "7MB"}},
		{0.25, "0.25", []string{"", "nan", "inf", "1e999"}},
		{90 * time.Second, "1m30s", []string{"", "0", "90", "1.5", "2d", "1 s"}},
		{24 * time.Hour, "24h", nil},
		{5*time.Hour + time.Second, "5h0m1s", nil},
		{time.Duration(0), "0s", nil},
		{word("warn"), "warn", []string{"", "WARN", "warning"}},
		{"any # [text", "any # [text", nil},
	} {
		typ := reflect.TypeOf(c.value)
		if got := Encode(reflect.ValueOf(c.value)); got != c.text {
			t.Errorf("%v is written as %s, want %s", c.value, got, c.text)
		}
		if got, err := Decode(typ, c.text); err != nil || got.Interface() != c.value {
			t.Errorf("%s is read as %v (error %v), want %v", c.text, got, err, c.value)
		}
		for _, text := range c.refused {
			if got, err := Decode(typ, text); err == nil {
				t.Errorf("%q is read as the %s %v, want an error", text, typ, got)
			}
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	type inner struct {
		Wait time.Duration `default:"2s"`
		Word word          `default:"warn"`
	}
	type outer struct {
		inner
		Deep  inner
		Count int `default:"7"`
		Name  string
		own   int
	}
	want := outer{inner: inner{2 * time.Second, "warn"}, Deep: inner{2 * time.Second, "warn"}, Count: 7}
	if got := Defaults[outer](); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	set := outer{Deep: inner{Wait: 1}, Count: -1, own: 3}
	Complete(&set)
	want.Deep.Wait, want.Count, want.own = 1, -1, 3
	if set != want {
		t.Errorf("got %+v, want %+v", set, want)
	}
}
