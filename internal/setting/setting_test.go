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
		{1000, "1000", []string{"", "1_000", "0x10", "0x1p4", "1/1", "1.5", "1e-1", "1e999", "1e1000000000", "NaN", "99999999999999999999", "9223372036854775808.0"}},
		{int64(-7), "-7", []string{"7 ", " 7e0", "7MB", "7e0MB"}},
		{int32(7), "7", []string{"3000000000", "3e9"}},
		{0.25, "0.25", []string{"", "nan", "inf", "1e999"}},
		{90 * time.Second, "1m30s", []string{"", "0", "90", "9e1", "1.5", "2d", "1 s"}},
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

// Helm renders large whole numbers as floats.
func TestWholeNumbersAreReadExactly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1.34217728e+08": 134217728, "1e+06": 1000000, "1048576.0": 1048576, "-2E0": -2, "010": 10,
		"9007199254740993": 1<<53 + 1, "9007199254740993.0": 1<<53 + 1, "9.223372036854775807e18": 1<<63 - 1,
	} {
		for _, typ := range []reflect.Type{reflect.TypeFor[int](), reflect.TypeFor[int64]()} {
			if got, err := Decode(typ, text); err != nil || got.Int() != want {
				t.Errorf("%s is read as the %s %v (error %v), want %d", text, typ, got, err, want)
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
