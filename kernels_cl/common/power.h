// SPDX-License-Identifier: Apache-2.0
// power.h: x^y of real numbers, scalars or vectors of type V.
// Numbers below the least normal one count as zeros of their sign, as they do in other arithmetic (-cl-denorms-are-zero): PoCL 3.0's
// pow, told so, takes them for other numbers (1e-40^2 is 1.9e-4).
#define POWER_OF(V, x, y) pow(fabs(x) < (V)FLT_MIN ? copysign((V)0, x) : (x), y)
