package meter_test

import "testing"

func BenchmarkNobodyListens(b *testing.B) {
	for name, m := range silent() {
		for _, c := range calls(m) {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.call()
				}
			})
		}
	}
}
