package main

import "testing"

func TestCalledAs(t *testing.T) {
	t.Parallel()
	const goRun = "go run ./cmd/feedbridge"
	for _, test := range []struct {
		file     string
		inModule bool
		want     string
	}{
		{"/tmp/go-build123/b001/exe/feedbridge", true, goRun},
		{"/home/me/.cache/go-build/ab/abcd-d/feedbridge", true, goRun},
		{"/home/me/.cache/go-build/ab/abcd-d/feedbridge", false, "/home/me/.cache/go-build/ab/abcd-d/feedbridge"},
		{"/home/me/my-go-build/feedbridge", true, "/home/me/my-go-build/feedbridge"},
		{"feedbridge", true, "feedbridge"},
		{"./feedbridge", false, "./feedbridge"},
	} {
		if got := calledAs(test.file, test.inModule); got != test.want {
			t.Errorf("calledAs(%q, %v) = %q, want %q", test.file, test.inModule, got, test.want)
		}
	}
}
