/* Planted: the product of two sizes in 32 bits. */
#include <stdint.h>

int main(void)
{
	volatile int32_t rows = 65536, keys = 65536;
	const int32_t product = rows * keys;

	return product == 1;
}
